//! Figures of Linux about a process, proc(5).

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::stats::number;

/// The unit of the fields user and system time; 100 on every relevant Linux.
const TICKS_PER_SECOND: u64 = 100;

fn read(pid: u32, file: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{file}");
    std::fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))
}

/// Returns the time that the process has spent on a processor, in user and system mode.
pub(crate) fn processor_time(pid: u32) -> Result<Duration> {
    let stat = read(pid, "stat")?;
    // The name, in parentheses, may contain any character.
    let (_, fields) = stat.rsplit_once(") ").context("failed to read stat")?;
    let field = |number: usize| -> Result<u64> {
        let text = fields.split(' ').nth(number).unwrap_or_default();
        text.parse().context("failed to read stat")
    };
    let ticks = field(11)? + field(12)?;
    Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}

/// Returns the time that all processors of the machine together have been busy.
pub(crate) fn machine_time() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/stat").context("failed to read /proc/stat")?;
    let line = stat.lines().next().context("/proc/stat is empty")?;
    let fields: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .map(str::parse)
        .collect::<Result<_, _>>()
        .context("failed to read /proc/stat")?;
    // user nice system idle iowait irq softirq …
    let busy = [0, 1, 2, 5, 6]
        .into_iter()
        .filter_map(|field| fields.get(field));
    Ok(Duration::from_millis(
        busy.sum::<u64>() * 1000 / TICKS_PER_SECOND,
    ))
}

/// Finds the processes with this name.
pub(crate) fn find_by_name(name: &str) -> Result<Vec<u32>> {
    let all = std::fs::read_dir("/proc").context("failed to read /proc")?;
    let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    // An ended process has no name.
    let bears = |pid: &u32| read(*pid, "comm").is_ok_and(|comm| comm.trim_end() == name);
    Ok(pids.filter(bears).collect())
}

/// Returns the memory that the process holds, in units of 1024 × 1024 bytes.
pub(crate) fn resident(pid: u32) -> Result<f64> {
    memory(pid, "VmRSS:")
}

/// Returns the peak memory of the process.
pub(crate) fn peak(pid: u32) -> Result<f64> {
    memory(pid, "VmHWM:")
}

fn memory(pid: u32, which: &str) -> Result<f64> {
    let status = read(pid, "status")?;
    let line = status.lines().find(|line| line.starts_with(which));
    let kibibytes = line.and_then(|line| line.split_whitespace().nth(1));
    let kibibytes = kibibytes.with_context(|| format!("failed to find {which}"))?;
    Ok(kibibytes.parse::<f64>()? / 1024.0)
}

/// Returns the number of open files of the process, sockets among them.
pub(crate) fn open_files(pid: u32) -> Result<f64> {
    entries(pid, "fd")
}

/// Returns the number of threads of the process.
pub(crate) fn threads(pid: u32) -> Result<f64> {
    entries(pid, "task")
}

fn entries(pid: u32, directory: &str) -> Result<f64> {
    let path = format!("/proc/{pid}/{directory}");
    let all = std::fs::read_dir(&path).with_context(|| format!("failed to read {path}"))?;
    number(all.count())
}

/// Returns the load of the machine, as in `0.42 0.36 0.30`: of the last one, five and fifteen minutes.
pub(crate) fn load_average() -> Result<String> {
    let load = std::fs::read_to_string("/proc/loadavg").context("failed to read the load")?;
    Ok(load.split(' ').take(3).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_memory_and_spends_time() {
        let pid = std::process::id();

        assert!(resident(pid).unwrap() > 0.1);
        assert!(open_files(pid).unwrap() >= 1.0);
        assert!(threads(pid).unwrap() >= 1.0);
        assert!(peak(pid).unwrap() >= resident(pid).unwrap() / 2.0);
        let (before, all) = (processor_time(pid).unwrap(), machine_time().unwrap());
        // The two are counted apart: ten ticks show activity that one tick may miss.
        while processor_time(pid).unwrap() < before + Duration::from_millis(100) {
            std::hint::black_box(0);
        }
        assert!(machine_time().unwrap() > all);
    }
}
