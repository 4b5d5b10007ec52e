//! Free ports on loopback.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use parking_lot::Mutex;

/// The first port, below the range from which Linux takes the local ports of outgoing connections
/// (32768 and up): such a connection cannot take a port of this range before its owner listens.
const FIRST: u16 = 20_000;
/// The number of ports from there on, in blocks.
const COUNT: u16 = 10_000;
/// The number of ports of a block, which belongs to one process.
const BLOCK: u16 = 50;

/// The ports of this process: a process locks a file for each of its blocks, so that no two processes choose the same
/// port before its owner listens. The locks end with the process.
struct Ports {
    directory: PathBuf,
    blocks: Vec<File>,
    next: u16,
    left: u16,
}

impl Ports {
    fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            blocks: Vec::new(),
            next: 0,
            left: 0,
        }
    }

    /// Returns the directory of the locks of this user.
    fn of_user() -> Result<Self> {
        let user = std::fs::metadata("/proc/self").context("failed to read /proc")?;
        let name = format!("oz-ports-{}", user.uid());
        Ok(Self::new(&std::env::temp_dir().join(name)))
    }

    /// Returns a port that no other call and no other process gets, and on which no process
    /// listens.
    fn take(&mut self) -> Result<u16> {
        loop {
            if self.left == 0 {
                self.lock_block()?;
            }
            let port = self.next;
            self.next += 1;
            self.left -= 1;
            if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Ok(port);
            }
        }
    }

    fn lock_block(&mut self) -> Result<()> {
        std::fs::create_dir_all(&self.directory)
            .with_context(|| format!("failed to create {}", self.directory.display()))?;
        let blocks = COUNT / BLOCK;
        // Every process starts at a random block, so that few locks are tried.
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), FIRST);
        let start = u16::try_from(seed % u64::from(blocks)).unwrap_or_default();
        for offset in 0..blocks {
            let block = (start + offset) % blocks;
            let path = self.directory.join(block.to_string());
            let file = File::create(&path)
                .with_context(|| format!("failed to open {}", path.display()))?;
            if file.try_lock().is_ok() {
                self.blocks.push(file);
                self.next = FIRST + block * BLOCK;
                self.left = BLOCK;
                return Ok(());
            }
        }
        anyhow::bail!("failed to find free ports: other test processes have all of them")
    }
}

/// Returns `N` different ports on which no process listens now, and that no other call of a test
/// gets.
///
/// # Errors
///
/// Fails when too many ports are taken.
pub(crate) fn free<const N: usize>() -> Result<[u16; N]> {
    static PORTS: Mutex<Option<Ports>> = Mutex::new(None);
    let mut ports = PORTS.lock();
    let ports = match &mut *ports {
        Some(ports) => ports,
        none => none.insert(Ports::of_user()?),
    };
    let mut taken = [0; N];
    for port in &mut taken {
        *port = ports.take()?;
    }
    Ok(taken)
}

/// Returns an address on loopback on which no process listens now, and that neither an outgoing
/// connection nor another test takes before its owner listens.
///
/// # Errors
///
/// Fails when too many ports are taken.
pub fn free_address() -> Result<SocketAddr> {
    let [port] = free()?;
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn two_processes_never_get_the_same_port() {
        let directory = tempfile::tempdir().unwrap();
        let (mut one, mut other) = (Ports::new(directory.path()), Ports::new(directory.path()));
        let taken: Vec<u16> = (0..3 * usize::from(BLOCK))
            .flat_map(|_| [one.take().unwrap(), other.take().unwrap()])
            .collect();
        let different: BTreeSet<u16> = taken.iter().copied().collect();
        assert_eq!(different.len(), taken.len());
        // The blocks of a process that has ended are free again.
        let held = one.blocks.len();
        drop(one);
        let mut rest = Ports::new(directory.path());
        let all = usize::from(COUNT / BLOCK) - other.blocks.len();
        for _ in 0..all {
            rest.lock_block().unwrap();
        }
        assert!(all >= held && rest.lock_block().is_err());
    }
}
