use prometheus_client::registry::Registry;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use super::*;

/// A writer that records the writes and their times.
struct Journal {
    written: Mutex<Vec<(String, String, Instant)>>,
    outcome: Mutex<Outcome>,
    /// The number of writes that may finish.
    open: Semaphore,
}

impl Write for Arc<Journal> {
    type Payload = Box<RawValue>;

    async fn write(&self, run: &RunName, events: &Box<RawValue>) -> Outcome {
        let began = Instant::now();
        self.open.acquire().await.unwrap().forget();
        let entry = (run.uid.clone(), events.get().to_owned(), began);
        self.written.lock().push(entry);
        *self.outcome.lock()
    }
}

struct World {
    reports: Arc<Reports<Arc<Journal>>>,
    journal: Arc<Journal>,
    stop: CancellationToken,
    running: tokio::task::JoinHandle<()>,
}

impl World {
    fn new(places: usize) -> Self {
        let journal = Arc::new(Journal {
            written: Mutex::default(),
            outcome: Mutex::new(Outcome::Written),
            open: Semaphore::new(places),
        });
        let metrics = Metrics::new(&mut Registry::default());
        let reports = Arc::new(Reports::new(Arc::clone(&journal), metrics, Metrics::wrote));
        let stop = CancellationToken::new();
        let (this, until) = (Arc::clone(&reports), stop.clone());
        let running = tokio::spawn(async move { this.run(until).await });
        Self {
            reports,
            journal,
            stop,
            running,
        }
    }

    fn put(&self, uid: &str, text: &str) -> bool {
        let run = RunName {
            namespace: "team".to_owned(),
            name: "hello".to_owned(),
            uid: uid.to_owned(),
        };
        let events = RawValue::from_string(format!("[{text:?}]")).unwrap();
        self.reports.put(&run, events).is_ok()
    }

    /// Returns the writes to the run, with their times.
    fn written(&self, uid: &str) -> Vec<(String, Instant)> {
        let written = self.journal.written.lock();
        let of = written.iter().filter(|(it, ..)| it == uid);
        of.map(|(_, text, at)| (text.clone(), *at)).collect()
    }

    async fn pass(&self, millis: u64) {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_is_written_at_once_and_then_its_last_report_every_two_seconds() {
    let world = World::new(1000);
    for number in 0..100 {
        assert!(world.put("one", &number.to_string()));
        world.pass(100).await;
    }
    assert!(world.put("other", "first"));
    world.pass(3_000).await;
    let written = world.written("one");
    assert_eq!(written[0].0, r#"["0"]"#);
    assert_eq!(written.last().unwrap().0, r#"["99"]"#);
    assert_eq!(written.len(), 6, "{written:?}");
    for pair in written.windows(2) {
        assert!(pair[1].1 - pair[0].1 >= EVERY, "{written:?}");
    }
    assert_eq!(world.written("other").len(), 1);
    world.pass(10_000).await;
    assert!(
        world.reports.waiting().runs.is_empty(),
        "the quiet are forgotten"
    );
    assert_eq!(world.reports.waiting().bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn a_report_never_waits_for_a_write_and_never_overtakes_one() {
    let world = World::new(0);
    assert!(world.put("one", "first"));
    world.pass(5_000).await;
    assert!(world.put("one", "second"));
    world.pass(5_000).await;
    assert!(world.written("one").is_empty());
    world.journal.open.add_permits(10);
    world.pass(5_000).await;
    let texts: Vec<_> = world.written("one").into_iter().map(|it| it.0).collect();
    assert_eq!(texts, [r#"["first"]"#, r#"["second"]"#]);
}

#[tokio::test(start_paused = true)]
async fn failed_report_is_retried_limited_times_unless_updated() {
    let world = World::new(1000);
    *world.journal.outcome.lock() = Outcome::Failed;
    assert!(world.put("one", "first"));
    world.pass(5_000).await;
    assert!(world.written("one").len() >= 2);
    assert!(world.put("one", "news"));
    world.pass(3_600_000).await;
    let written = world.written("one");
    assert!(written.len() <= 2 * TRIES as usize, "{}", written.len());
    assert_eq!(written.last().unwrap().0, r#"["news"]"#);
    assert_eq!(world.reports.waiting().bytes, 0);
    *world.journal.outcome.lock() = Outcome::Lost;
    let before = world.written("one").len();
    assert!(world.put("one", "gone"));
    world.pass(60_000).await;
    assert_eq!(world.written("one").len(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn pending_report_is_written_at_shutdown_at_usual_interval() {
    let world = World::new(1000);
    assert!(world.put("one", "first"));
    world.pass(100).await;
    assert!(world.put("one", "second"));
    world.stop.cancel();
    world.running.await.unwrap();
    let written = {
        let written = world.journal.written.lock();
        written
            .iter()
            .map(|(_, text, at)| (text.clone(), *at))
            .collect::<Vec<_>>()
    };
    assert_eq!(written.len(), 2);
    assert!(written[1].1 - written[0].1 >= EVERY);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_answer_does_not_hold_up_the_end() {
    let world = World::new(0);
    assert!(world.put("one", "first"));
    world.pass(100).await;
    world.stop.cancel();
    let began = Instant::now();
    world.running.await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn pending_reports_are_limited_in_bytes_and_replaced_by_update() {
    let world = World::new(0);
    let large = "x".repeat(60 << 10);
    let taken = (0..1000)
        .filter(|at| world.put(&at.to_string(), &large))
        .count();
    assert!((50..100).contains(&taken), "{taken}");
    for _ in 0..1000 {
        assert!(world.put("0", &large[1..]));
    }
    assert!(world.reports.waiting().bytes <= BYTES);
}
