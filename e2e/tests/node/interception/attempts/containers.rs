//! Attempts to read what other containers of the pod have, and to change what the agent's container shares.

use anyhow::Result;

use super::fails;

/// Searching the file system for tokens of other containers: the container has none.
#[tokio::test]
async fn token_in_a_file() -> Result<()> {
    fails("token_in_a_file").await
}

/// Searching the file system for the key of the proxy's authority: only the proxy mounts its volume.
#[tokio::test]
async fn key_of_the_authority() -> Result<()> {
    fails("key_of_the_authority").await
}

/// Adding an authority to the file of trusted certificates, which other containers read: the file is mounted read-only.
#[tokio::test]
async fn trust_file_that_is_writable() -> Result<()> {
    fails("trust_file_that_is_writable").await
}

/// Finding the processes of the proxy and of oz in `/proc`: the container sees only its own processes.
#[tokio::test]
async fn processes_of_other_containers() -> Result<()> {
    fails("processes_of_other_containers").await
}

/// Reading the files of other containers through `/proc/1/root`: the first process is the agent's own.
#[tokio::test]
async fn files_of_other_containers() -> Result<()> {
    fails("files_of_other_containers").await
}

/// Attaching to other processes as a debugger: there is none that is not the agent's own.
#[tokio::test]
async fn memory_of_other_processes() -> Result<()> {
    fails("memory_of_other_processes").await
}

/// Changing settings of the network in `/proc/sys`: it is mounted read-only.
#[tokio::test]
async fn settings_of_the_kernel() -> Result<()> {
    fails("settings_of_the_kernel").await
}
