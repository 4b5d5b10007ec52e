//! Two operators and two webhooks, while grants begin and end: regardless of failures of one of them, of the authority
//! behind the certificates or of the API server, no grant is lost, and none begins or ends later than promised.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use oz_e2e::{LEASE_AND_TURNS, Outcome, Replicas, Scene, Traffic};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, cargo_binary, eventually};

use crate::alone;

async fn set(cluster: &'static Cluster, name: &str) -> Result<(Replicas, Scene, Traffic)> {
    let replicas = Replicas::start(cluster).await?;
    let scene = Scene::set(cluster, name).await?;
    let traffic = Traffic::start(&scene).await?;
    traffic.flows(&scene).await?;
    Ok((replicas, scene, traffic))
}

/// Checks that no request was refused, and that no grant ended before its time.
fn assert_served(outcome: &Outcome) {
    assert!(outcome.refused.is_empty(), "{:?}", outcome.refused);
    assert!(outcome.unlogged.is_empty(), "{:?}", outcome.unlogged);
    assert_eq!(outcome.unreachable, 0);
    assert_in_time(outcome, |_| LEASE_AND_TURNS);
}

/// Checks that neither access nor its end is later than `bound` after the instant at which it is due.
fn assert_in_time(outcome: &Outcome, bound: impl Fn(Timestamp) -> SignedDuration) {
    assert!(outcome.in_vain.is_empty(), "{:?}", outcome.in_vain);
    for times in &outcome.granted {
        assert!(!times.late().is_negative(), "{times:?}");
        assert!(times.late() <= bound(times.until), "{times:?}");
        assert!(times.wait() <= bound(times.asked), "{times:?}");
    }
}

#[tokio::test]
async fn a_leader_that_dies_delays_nothing_by_much_more_than_its_lease() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let (mut replicas, scene, traffic) = set(cluster, "dies").await?;
    replicas.kill_leader().await?;
    traffic.granted(&scene).await?;
    assert_served(&traffic.stop(&scene).await?);
    Ok(())
}

#[tokio::test]
async fn rolling_replacement_of_replicas_refuses_no_requests() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let (mut replicas, scene, traffic) = set(cluster, "rolled").await?;
    replicas.roll(&traffic, &scene).await?;
    assert_served(&traffic.stop(&scene).await?);
    Ok(())
}

#[tokio::test]
async fn authority_rotation_refuses_no_requests() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let (replicas, scene, traffic) = set(cluster, "rotated").await?;
    replicas.rotate_authority().await?;
    traffic.granted(&scene).await?;
    traffic.more(10).await?;
    assert_served(&traffic.stop(&scene).await?);
    Ok(())
}

/// `ozctl audit tail` of a namespace, from its report that it follows the trail.
struct Tail {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Tail {
    async fn start(scene: &Scene) -> Result<Self> {
        let mut command = Command::new(cargo_binary("ozctl")?);
        command
            .args(["audit", "tail", "-n", scene.name()])
            .env("KUBECONFIG", scene.cluster.kubeconfig("admin"))
            .env("NO_COLOR", "1")
            .stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let output = BufReader::new(child.stdout.take().context("no standard output")?);
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut tail = Self {
            child,
            lines,
            seen: Vec::new(),
        };
        tail.shows("WRITER", "TIME").await?;
        Ok(tail)
    }

    /// Waits until a line contains both.
    async fn shows(&mut self, action: &str, name: &str) -> Result<()> {
        eventually(
            "ozctl audit tail to show a record",
            CONDITION_TIMEOUT,
            async || {
                ensure!(self.child.try_wait()?.is_none(), "it has ended");
                self.seen.extend(self.lines.try_iter());
                let mut seen = self.seen.iter();
                let is_shown = seen.any(|line| {
                    let has = |wanted: &str| line.split_whitespace().any(|word| word == wanted);
                    has(action) && has(name)
                });
                ensure!(is_shown, "{action} of {name} in {:?}", self.seen);
                Ok(Some(()))
            },
        )
        .await
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn the_api_server_restarts_and_no_grant_and_no_line_of_the_trail_is_lost() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let (_replicas, scene, traffic) = set(cluster, "restarted").await?;
    let mut tail = Tail::start(&scene).await?;
    let followed = Timestamp::now();
    let (killed, back) = cluster.restart_api_server().await?;
    traffic.granted(&scene).await?;
    let outcome = traffic.stop(&scene).await?;
    for times in &outcome.granted {
        // The record precedes the binding: the record of an earlier request may have preceded the tail.
        if times.asked > followed {
            tail.shows("AccessGranted", &times.name).await?;
        }
        if times.until > followed {
            tail.shows("AccessExpired", &times.name).await?;
        }
    }
    // An API server that is killed during a response does not log that, which is rare.
    let (unlogged, all) = (outcome.unlogged.len(), outcome.granted.len());
    assert!(unlogged * 10 <= all, "{:?}", outcome.unlogged);
    // An event that is due while the API server is down waits for it, and for a leader.
    assert_in_time(&outcome, |due| {
        let without = (killed..back).contains(&due);
        let waits = if without {
            back.duration_since(due)
        } else {
            SignedDuration::ZERO
        };
        LEASE_AND_TURNS + waits
    });
    Ok(())
}
