//! The operating system's figures of this process, under the names that Prometheus' own client
//! libraries use.

use std::fs;

use rustix::{
    process::{Resource, getrlimit},
    time::{ClockId, clock_gettime},
};

/// The name and the value of each figure that this system reports. Memory and open files need
/// Linux's `/proc`.
pub(crate) fn read() -> Vec<(&'static str, f64)> {
    let figures = [
        ("process_cpu_seconds_total", Some(cpu_seconds())),
        ("process_resident_memory_bytes", resident_memory_bytes()),
        ("process_open_fds", open_files()),
        (
            "process_max_fds",
            getrlimit(Resource::Nofile)
                .current
                .map(|files| files as f64),
        ),
    ];
    figures
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

/// Processor time of all threads since the process began.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// `/proc/self/status` has the line `VmRSS:     1234 kB`.
fn resident_memory_bytes() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024.0)
}

fn open_files() -> Option<f64> {
    let files = fs::read_dir("/proc/self/fd").ok()?.count();
    // One of them is the folder that is being read.
    Some(files.saturating_sub(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn linux_reports_every_figure_of_a_process() {
        let figures = read();
        for name in [
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
            "process_open_fds",
            "process_max_fds",
        ] {
            let value = figures.iter().find(|(figure, _)| *figure == name);
            assert!(value.is_some_and(|(_, value)| *value > 0.0), "{name}");
        }
    }
}
