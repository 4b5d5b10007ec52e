//! The transcript of a run that has ended, read by a pod.

use clap::Args;
use kube::ResourceExt;
use oz_api::harness::HarnessRun;

use crate::cluster::Cluster;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::interrupts::Interrupts;
use crate::output::pass_on;
use crate::run::{Reading, TranscriptReader};
use crate::verbs::go_duration;

/// The flags for reading a transcript.
#[derive(Args)]
pub(super) struct ReaderFlags {
    /// Maximum time for reading a transcript
    #[arg(long, value_name = "DURATION", default_value = "2m")]
    timeout: String,
    /// Leave the pod that reads it
    #[arg(long)]
    keep_reader: bool,
    /// An image with cat in it to read by, as NAME@sha256:DIGEST [default: oz's own]
    #[arg(long, value_name = "IMAGE")]
    reader_image: Option<String>,
    /// Images that begin so need no digest; may be repeated
    #[arg(long, value_name = "PREFIX")]
    allow_reader_image_prefix: Vec<String>,
}

/// Prints one file of the transcript of a run that has ended.
pub(super) async fn read(
    context: &Context,
    cluster: &Cluster,
    run: &HarnessRun,
    file: &str,
    flags: &ReaderFlags,
) -> Result<Exit> {
    let text = &flags.timeout;
    let within = go_duration(text)
        .ok_or_else(|| Failure::new(format!("--timeout: {text} is not a duration, such as 2m")))?;
    let reading = Reading {
        file,
        within,
        image: flags.reader_image.as_deref(),
        allowed_prefixes: &flags.allow_reader_image_prefix,
    };
    let mut interrupts = Interrupts::new()?;
    let reader = TranscriptReader::create(cluster, run, &reading).await?;
    let (pod, name) = (reader.name(), run.name_any());
    let done = tokio::select! {
        done = reader.read(pass_on(context)) => done.map(|()| Exit::SUCCESS).map_err(Failure::from),
        exit = interrupts.next() => Ok(exit),
        () = tokio::time::sleep(within) => Err(Failure::new(format!(
            "pod {pod} did not read {file} of run {name} within {text}"
        ))
        .next(format!(
            "give a longer --timeout; with --keep-reader the pod stays: `kubectl describe pod \
                {pod} -n {}`",
            cluster.namespace
        ))),
    };
    if flags.keep_reader {
        context.say(&format!("Pod {pod} stays, because of --keep-reader."));
        return done;
    }
    let deleted = reader.delete().await;
    let exit = done?;
    deleted?;
    Ok(exit)
}
