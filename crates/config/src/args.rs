//! The flags that name a configuration.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use oz_runtime::Common;
use serde_json::Value;

use crate::component::Component;
use crate::load::{ConfigError, Loaded, Override, load};

/// The flags that name the configuration of a process.
#[derive(Args, Clone, Debug)]
pub struct ConfigArgs {
    /// File with the configuration (OzConfiguration). By default, every field has its default value.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Value of one field of the configuration, instead of the value in the file, such as
    /// transient.maxBindingWindow=8h. VALUE is YAML; null for the default. The audit trail records each.
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<Override>,
}

impl ConfigArgs {
    /// Reads the configuration of a component.
    ///
    /// # Errors
    /// The file cannot be read, or the path of the field that is unknown, missing or invalid.
    pub fn load(&self, component: Component) -> Result<Loaded, ConfigError> {
        let text = self.text()?;
        load(text.as_deref(), &self.set, component)
    }

    /// Reads the configuration of a component, and starts its log.
    ///
    /// # Errors
    /// As [`Self::load`]; or the log filter is invalid.
    pub fn start(&self, common: &Common, component: Component) -> anyhow::Result<Loaded> {
        let loaded = self.load(component)?;
        let log = &loaded.configuration.log;
        common.start_logging(&log.filter, log.format.into())?;
        Ok(loaded)
    }

    /// Sets a field to a value, as another flag of the process does.
    pub fn set(&mut self, path: &str, value: Value) {
        self.set.push(Override::new(path, value));
    }

    /// Returns the content of the file; `None` without a file.
    fn text(&self) -> Result<Option<String>, ConfigError> {
        let read = self.config.as_ref().map(|file| {
            fs::read_to_string(file).map_err(|error| ConfigError::File {
                file: file.clone(),
                error,
            })
        });
        read.transpose()
    }
}
