//! Reports that the file of a process has another configuration than the process. Only the next start reads the file: a
//! configuration that takes effect in parts, at no exact instant, could not be audited.

use std::time::Duration;

use oz_runtime::Task;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::args::ConfigArgs;
use crate::component::Component;
use crate::load::Loaded;

/// The interval between two comparisons.
const LOOK: Duration = Duration::from_secs(10);

/// The task that compares the configuration of a process with its file.
pub struct ConfigWatch {
    args: ConfigArgs,
    component: Component,
    digest: String,
    outdated: Gauge,
}

impl ConfigWatch {
    /// Creates the task for a process that started with `loaded`, and registers its metrics.
    #[must_use]
    pub fn new(
        args: &ConfigArgs,
        loaded: &Loaded,
        component: Component,
        registry: &mut Registry,
    ) -> Self {
        let info = Family::<Vec<(String, String)>, Gauge>::default();
        let digest = ("digest".to_owned(), loaded.digest.clone());
        info.get_or_create(&vec![digest]).set(1);
        registry.register(
            "oz_configuration_info",
            "Digest of the configuration with which the process started",
            info,
        );
        let outdated = Gauge::default();
        registry.register(
            "oz_configuration_outdated",
            "Whether the configuration in the process's file differs from the one with which it \
                started: 1 or 0",
            outdated.clone(),
        );
        Self {
            args: args.clone(),
            component,
            digest: loaded.digest.clone(),
            outdated,
        }
    }

    /// Compares once; returns the difference in words.
    fn difference(&self) -> Option<String> {
        match self.args.load(self.component) {
            Ok(loaded) if loaded.digest == self.digest => None,
            Ok(_) => Some("takes effect at the next start of the process".to_owned()),
            Err(error) => Some(format!("keeps the process from its next start: {error}")),
        }
    }
}

impl Task for ConfigWatch {
    async fn run(&self) {
        let mut told = None;
        loop {
            let difference = self.difference();
            self.outdated.set(i64::from(difference.is_some()));
            if let Some(effect) = &difference
                && told != difference
            {
                tracing::warn!("the configuration changed, which {effect}");
            }
            told = difference;
            tokio::time::sleep(LOOK).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Process {
        #[command(flatten)]
        config: ConfigArgs,
    }

    #[test]
    fn changed_file_is_reported_until_next_start() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config.yaml");
        let write = |text: &str| {
            let head = "apiVersion: config.oz.wizardofoz.co/v1alpha1\nkind: OzConfiguration\n";
            fs::write(&file, format!("{head}{text}")).unwrap();
        };
        write("gate: {maxSessions: 7}");
        let flag = format!("--config={}", file.display());
        let args = Process::try_parse_from(["oz", &flag]).unwrap().config;
        let loaded = args.load(Component::Gate).unwrap();
        let watch = ConfigWatch::new(&args, &loaded, Component::Gate, &mut Registry::default());
        assert_eq!(watch.difference(), None);
        // The gate does not read this section.
        write("gate: {maxSessions: 7}\noperator: {workers: 2}");
        assert_eq!(watch.difference(), None);
        write("gate: {maxSessions: 8}");
        assert!(watch.difference().unwrap().contains("next start"));
        write("gate: {maxSession: 8}");
        let invalid = watch.difference().unwrap();
        assert!(invalid.contains("gate.maxSession"), "{invalid}");
        write("gate: {maxSessions: 7}");
        assert_eq!(watch.difference(), None);
        let without = Process::try_parse_from(["oz"]).unwrap().config;
        let loaded = without.load(Component::Gate).unwrap();
        let watch = ConfigWatch::new(&without, &loaded, Component::Gate, &mut Registry::default());
        assert_eq!(watch.difference(), None);
    }
}
