//! The story of the demo, step by step. A step shows an action and its result, and fails if the result
//! differs from the text.

mod approval;
mod recorded;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use oz_api::{ExecAccessRequest, Phase, RequestStatus, TargetKind};
use oz_e2e::{
    ExecRequests, Gate, GrantedRequest, System, active, conditions_line, exec_request,
    exec_template,
};
use oz_testkit::{Cluster, eventually, fixtures};
use oz_trail::Action;
use serde_json::json;

use super::people::{Answer, Person};
use super::{NAMESPACE, records};
use crate::changes::Watching;
use xtask::screen::{Screen, Style, wrap};

/// The template of the story, and the Deployment behind it.
pub(crate) const TEMPLATE: &str = "shell";
const WORKLOAD: &str = "web";
const REQUEST: &str = "look-at-orders";
/// Long enough for several attempts, short enough to watch the expiry.
const DURATION: &str = "20s";
const STEP_TIMEOUT: Duration = Duration::from_secs(60);
/// The budget for the delay of the end of a grant.
const LAG: Duration = Duration::from_secs(1);
const INDENT: usize = 3;

/// The state of the story.
pub(crate) struct Story<'a> {
    screen: Screen,
    cluster: &'a Cluster,
    system: &'a System,
    gate: &'a Gate,
    admin: Client,
    alice: Person<'a>,
    bob: Person<'a>,
}

impl<'a> Story<'a> {
    pub(crate) async fn new(
        screen: Screen,
        cluster: &'a Cluster,
        system: &'a System,
        gate: &'a Gate,
    ) -> Result<Self> {
        let person = |name| Person { name, cluster };
        Ok(Self {
            screen,
            cluster,
            system,
            gate,
            admin: cluster.client("admin").await?,
            alice: person("alice"),
            bob: person("bob"),
        })
    }

    pub(crate) async fn tell(&self, started: Duration) -> Result<()> {
        self.the_place(started).await.context("step 1")?;
        let bindings = Api::<RoleBinding>::namespaced(self.admin.clone(), NAMESPACE);
        let mut bindings = Watching::start(bindings).await?;
        let asked = self.alice_asks().await.context("step 2")?;
        self.show_permissions(&asked).await.context("step 3")?;
        self.show_connections(&asked).await.context("step 4")?;
        self.mallory_asks().await.context("step 5")?;
        self.the_end(&asked, &mut bindings)
            .await
            .context("step 6")?;
        self.in_one_command().await.context("step 7")?;
        self.with_approval().await.context("step 8")?;
        self.recorded().await.context("step 9")?;
        self.the_record().await.context("step 10")
    }

    async fn the_place(&self, started: Duration) -> Result<()> {
        self.step(1, "A Kubernetes cluster with oz on it")?;
        let version = self.admin.apiserver_version().await?.git_version;
        self.say(&format!(
            "A real API server, {version}, up in {:.1} s. Its one node is kwok: processes of this \
             machine stand in for containers.",
            started.as_secs_f64()
        ))?;
        self.say(
            "Oz consists of its webhook, its operator and its kinds, and here a gate. Each process \
             runs under its own service account with the roles of deploy/rbac, not as an \
             administrator.",
        )?;
        self.people_may_ask().await?;
        fixtures::deployment(&self.admin, NAMESPACE, WORKLOAD, 2).await?;
        Api::namespaced(self.admin.clone(), NAMESPACE)
            .create(
                &PostParams::default(),
                &exec_template(TEMPLATE, TargetKind::Deployment, WORKLOAD),
            )
            .await
            .context("failed to create the template")?;
        self.say(&format!(
            "In namespace {NAMESPACE} runs the Deployment `{WORKLOAD}`. Its developers, alice and bob \
             of group devs, may see its pods but not get into them. The template `{TEMPLATE}` lets \
             devs ask."
        ))
    }

    /// Creates a namespace of which the users may read and may create requests.
    async fn people_may_ask(&self) -> Result<()> {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        let namespace = serde_json::from_value(namespace)?;
        Api::<k8s_openapi::api::core::v1::Namespace>::all(self.admin.clone())
            .create(&PostParams::default(), &namespace)
            .await?;
        let bindings = Api::<RoleBinding>::namespaced(self.admin.clone(), NAMESPACE);
        let group = "rbac.authorization.k8s.io";
        let subjects = ["devs", "interns"]
            .map(|name| json!({"apiGroup": group, "kind": "Group", "name": name}));
        for role in ["view", "oz-view-access", "oz-request-access"] {
            let binding = serde_json::from_value(json!({
                "metadata": {"name": format!("people-{role}")},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
                "subjects": subjects,
            }))?;
            bindings.create(&PostParams::default(), &binding).await?;
        }
        let accounts = Api::<k8s_openapi::api::core::v1::ServiceAccount>::namespaced(
            self.admin.clone(),
            NAMESPACE,
        );
        eventually("the default service account", STEP_TIMEOUT, async || {
            Ok(accounts.get_opt("default").await?)
        })
        .await?;
        Ok(())
    }

    async fn requests(&self, user: &str) -> Result<ExecRequests> {
        Ok(ExecRequests::new(
            self.cluster.client(user).await?,
            NAMESPACE,
        ))
    }

    async fn alice_asks(&self) -> Result<GrantedRequest> {
        self.step(2, "alice asks for access, for 20 seconds")?;
        let requests = self.requests("alice").await?;
        let mut watch = Watching::start(requests.api().clone()).await?;
        let request = exec_request(REQUEST, TEMPLATE, DURATION);
        self.say(&format!(
            "She creates the ExecAccessRequest `{REQUEST}`: {{templateName: {TEMPLATE}, duration: \
             {DURATION}}}."
        ))?;
        let began = Instant::now();
        requests
            .create(&request)
            .await
            .context("her request was refused")?;
        let settled = |request: &ExecAccessRequest| {
            let status = request.status.clone().unwrap_or_default();
            status.ready || status.phase.is_terminal()
        };
        let seen = watch
            .until("her request to be ready", STEP_TIMEOUT, |seen| {
                seen.object.name_any() == REQUEST && settled(&seen.object)
            })
            .await?;
        let asked = GrantedRequest {
            request: seen.object,
        };
        let status = asked.status();
        ensure!(
            active(&status),
            "{}: {}",
            status.phase,
            conditions_line(&status)
        );
        let took = (seen.at - began).as_millis();
        self.good(&format!(
            "Ready {took} ms after she asked (from her call to what a watch showed)."
        ))?;
        let until = until(&status)?;
        let left = until.duration_since(Timestamp::now()).as_secs_f64();
        self.fact("pod", &asked.pod())?;
        self.fact(
            "until",
            &format!("{} UTC, {left:.1} s from now", clock(until)),
        )?;
        self.fact(
            "to get in",
            status.access_message.as_deref().unwrap_or_default(),
        )?;
        Ok(asked)
    }

    async fn show_permissions(&self, asked: &GrantedRequest) -> Result<()> {
        self.step(3, "Who may get into that pod now?")?;
        let pods =
            fixtures::ready_pods(&self.admin, NAMESPACE, &format!("app={WORKLOAD}"), 2).await?;
        let other = pods
            .iter()
            .map(|pod| pod.name_any())
            .find(|name| *name != asked.pod());
        let other = other.context("the Deployment has no other pod")?;
        let yes = self.alice.may_exec(NAMESPACE, &asked.pod()).await?;
        let no = self.alice.may_exec(NAMESPACE, &other).await?;
        let no_bob = self.bob.may_exec(NAMESPACE, &asked.pod()).await?;
        self.answer("alice", &yes, true, "")?;
        self.answer(
            "alice",
            &no,
            false,
            "  (another pod of the same Deployment)",
        )?;
        self.answer("bob", &no_bob, false, "  (same group, but he did not ask)")
    }

    async fn show_connections(&self, asked: &GrantedRequest) -> Result<()> {
        self.step(4, "Getting in")?;
        let pod = asked.pod();
        let script = r#"echo "hello from process $$""#;
        let alice = self.alice.exec(NAMESPACE, &pod, script).await?;
        self.answer("alice", &alice, true, "")?;
        ensure!(
            alice.text.contains("hello from process"),
            "it said: {}",
            alice.text
        );
        let bob = self.bob.exec(NAMESPACE, &pod, script).await?;
        self.answer("bob", &bob, false, "")
    }

    async fn mallory_asks(&self) -> Result<()> {
        self.step(5, "mallory, an intern, asks too")?;
        let request = exec_request("me-too", TEMPLATE, DURATION);
        self.say("She creates an ExecAccessRequest of her own. The API server answers:")?;
        match self.requests("mallory").await?.create(&request).await {
            Ok(_) => bail!("her request was admitted"),
            Err(kube::Error::Api(status)) if status.code == 403 => self.bad(&status.message),
            Err(error) => Err(error).context("her request failed in another way"),
        }
    }

    async fn the_end(
        &self,
        asked: &GrantedRequest,
        bindings: &mut Watching<RoleBinding>,
    ) -> Result<()> {
        let status = asked.status();
        let until = until(&status)?;
        self.step(6, &format!("The end, agreed for {} UTC", clock(until)))?;
        let still = self.alice.may_exec(NAMESPACE, &asked.pod()).await?;
        let left = until.duration_since(Timestamp::now()).as_secs_f64();
        ensure!(
            left > 0.0,
            "this machine is too slow for a grant of {DURATION}"
        );
        ensure!(
            still.succeeded,
            "{left:.1} s before the end alice may not get in any more"
        );
        self.say(&format!(
            "{left:.1} s before it alice may still get in. Waiting …"
        ))?;
        let name = asked.object_name();
        let mut gone = std::pin::pin!(bindings.until(
            "her RoleBinding to go",
            STEP_TIMEOUT,
            |seen| { seen.deleted && seen.object.name_any() == name }
        ));
        let gone = loop {
            let tick = tokio::time::sleep(Duration::from_millis(200));
            tokio::select! {
                gone = &mut gone => break gone?,
                () = tick => {
                    let left = until.duration_since(Timestamp::now()).as_secs_f64().max(0.0);
                    self.screen.passing(&format!("   {left:4.1} s"))?;
                }
            }
        };
        let lag = gone.time.duration_since(until);
        let exec = self
            .alice
            .exec(NAMESPACE, &asked.pod(), "echo still here")
            .await?;
        self.good(&format!(
            "Her RoleBinding was gone {} ms after the agreed instant, by the API server's clock.",
            lag.as_millis()
        ))?;
        ensure!(!lag.is_negative(), "that is too early");
        ensure!(lag.unsigned_abs() < LAG, "that is too late");
        self.answer("alice", &exec, false, "")?;
        let status = self
            .requests("alice")
            .await?
            .phase(REQUEST, Phase::Expired)
            .await?;
        self.say(&format!(
            "Her request stays for people to read, in phase {}.",
            status.phase
        ))
    }

    async fn in_one_command(&self) -> Result<()> {
        self.step(7, "The same in one command")?;
        self.say(
            "`ozctl exec` finds the template, asks, waits, runs the command, and gives the access back.",
        )?;
        let workload = format!("deploy/{WORKLOAD}");
        let script = r#"echo "hello again from process $$""#;
        let words = ["exec", "-n", NAMESPACE, &workload, "--reason", "INC-42"];
        let words = [&words[..], &["--", "sh", "-c", script]].concat();
        let alice = self.alice.ozctl(&words).await?;
        self.answer("alice", &alice, true, "")?;
        ensure!(
            alice.text.contains("hello again from process"),
            "it said: {}",
            alice.text
        );
        let requests = self.requests("alice").await?;
        eventually("her access to be given back", STEP_TIMEOUT, async || {
            let all = requests.api().list(&Default::default()).await?.items;
            let mut lasting = all.iter().filter(|one| {
                one.status
                    .as_ref()
                    .is_none_or(|status| !status.phase.is_terminal())
            });
            Ok(lasting.next().is_none().then_some(()))
        })
        .await?;
        self.good("No access of hers lasts any more: it went with the command.")
    }

    async fn the_record(&self) -> Result<()> {
        self.step(10, "The audit trail")?;
        let expected = [
            (Action::RequestCreated, "alice"),
            (Action::AccessGranted, "alice"),
            (Action::RequestDenied, "mallory"),
            (Action::AccessExpired, "alice"),
            (Action::AccessRevoked, "alice"),
            (Action::ApprovalGiven, "bob"),
            (Action::SessionTerminated, "alice"),
            (Action::SessionRecorded, "alice"),
            (Action::RecordingPlayed, "bob"),
        ];
        let lines = eventually("the record to be complete", STEP_TIMEOUT, async || {
            let lines = records::read(self.system, self.gate)?;
            let all = expected.iter().all(|(action, user)| {
                lines.iter().any(|line| {
                    let who = line.record.user.as_ref().map(|who| who.user.as_str());
                    line.record.action == *action && who == Some(*user)
                })
            });
            ensure!(all, "{}", records::table(&lines).join("\n"));
            let by_bob = lines.iter().any(|line| {
                let approved = line.record.details.get("approvedBy");
                approved.is_some_and(|approved| approved.contains("bob"))
            });
            ensure!(by_bob, "no grant names bob as who approved it");
            Ok(Some(lines))
        })
        .await?;
        for line in records::table(&lines) {
            self.screen.line(&format!("   {line}"))?;
        }
        let file = records::keep(self.system, self.gate)?;
        self.say(&format!(
            "One line of JSON each, as written: {}",
            file.display()
        ))
    }

    // The output of the story.

    fn step(&self, number: usize, title: &str) -> Result<()> {
        let title = self
            .screen
            .paint(Style::Bold, &format!("{number}  {title}"));
        self.screen.line(&format!("\n{title}"))
    }

    fn say(&self, text: &str) -> Result<()> {
        wrap(text, INDENT)
            .iter()
            .try_for_each(|line| self.screen.line(&format!("   {line}")))
    }

    fn styled(&self, style: Style, text: &str) -> Result<()> {
        wrap(text, INDENT).iter().try_for_each(|line| {
            self.screen
                .line(&format!("   {}", self.screen.paint(style, line)))
        })
    }

    fn good(&self, text: &str) -> Result<()> {
        self.styled(Style::Good, text)
    }

    fn bad(&self, text: &str) -> Result<()> {
        self.styled(Style::Bad, text)
    }

    fn fact(&self, name: &str, value: &str) -> Result<()> {
        self.screen.line(&format!("     {name:10} {value}"))
    }

    fn command(&self, who: &str, command: &str) -> Result<()> {
        let prompt = self.screen.paint(Style::Dim, &format!("{who}$"));
        self.screen.line(&format!("   {prompt} {command}"))
    }

    /// Shows a command and its result, which must be as `wanted`.
    fn answer(&self, who: &str, answer: &Answer, wanted: bool, remark: &str) -> Result<()> {
        self.command(who, &answer.command)?;
        let text = format!("{}{remark}", answer.text);
        if answer.succeeded {
            self.good(&text)?;
        } else {
            self.bad(&text)?;
        }
        ensure!(
            answer.succeeded == wanted,
            "`{}` as {who} should have been otherwise",
            answer.command
        );
        Ok(())
    }
}

fn until(status: &RequestStatus) -> Result<Timestamp> {
    status
        .expires_at
        .context("the request does not say when it ends")
}

fn clock(time: Timestamp) -> String {
    time.strftime("%H:%M:%S").to_string()
}
