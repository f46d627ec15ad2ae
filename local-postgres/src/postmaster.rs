//! The running server: its `postmaster.pid`, its process and its port. The command line of
//! the process is read from /proc on Linux, and from `ps` elsewhere.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// How long the server may take to answer one packet.
const ANSWER_DEADLINE: Duration = Duration::from_secs(2);

/// The SSLRequest packet: length 8, code 80877103. Every PostgreSQL answers it with one byte, S or
/// N.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// The content of `postmaster.pid`.
#[derive(Debug)]
pub(crate) struct Postmaster {
    pid: Pid,
    data: PathBuf,
    pub(crate) port: u16,
    pub(crate) socket_folder: PathBuf,
    ready: bool,
}

impl Postmaster {
    /// Reads the file. None if it is missing or not completely written.
    pub(crate) fn read(data: &Path) -> Option<Postmaster> {
        let text = fs::read_to_string(data.join("postmaster.pid")).ok()?;
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        // pid, data folder, start time, port, socket folder, listen address, shared memory, status
        let &[pid, folder, _, port, socket_folder, _, _, status] = lines.as_slice() else {
            return None;
        };
        Some(Postmaster {
            pid: Pid::from_raw(pid.parse().ok()?)?,
            data: folder.into(),
            port: port.parse().ok()?,
            socket_folder: socket_folder.into(),
            // A standby accepts queries too.
            ready: matches!(status, "ready" | "standby"),
        })
    }

    /// Whether it is the process with this id.
    pub(crate) fn is_process(&self, id: u32) -> bool {
        u32::try_from(self.pid.as_raw_nonzero().get()) == Ok(id)
    }

    /// Whether the process runs and is a PostgreSQL on this data folder, not another process that
    /// got the same pid.
    pub(crate) fn is_running(&self) -> bool {
        is_postgres_on(self.pid, &self.data)
    }

    /// Whether clients can connect: the process runs, its status is ready, and its port answers.
    pub(crate) fn accepts_connections(&self) -> bool {
        self.ready && self.is_running() && answers(self.port)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // The process may have ended already. The caller waits for its end in any case.
        let _ = kill_process(self.pid, signal);
    }
}

/// Whether the pid file names a running process that is not a PostgreSQL on this folder: the pid
/// was reused after a crash, or it belongs to a zombie. PostgreSQL would take that process for a
/// running server and refuse to start.
pub(crate) fn pid_file_names_other_process(data: &Path) -> bool {
    let text = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    let pid = text
        .lines()
        .next()
        .and_then(|pid| pid.trim().parse().ok())
        .and_then(Pid::from_raw);
    pid.is_some_and(|pid| is_alive(pid) && !is_postgres_on(pid, data))
}

/// Writes the pid of this process into the pid file. PostgreSQL knows that its parent is not a
/// postmaster, so it treats the file as stale. It then checks the shared memory that the file names
/// for remaining backends. Removing the file would remove that check.
pub(crate) fn take_over_pid_file(data: &Path) -> std::io::Result<()> {
    let path = data.join("postmaster.pid");
    let text = fs::read_to_string(&path)?;
    let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
    fs::write(&path, format!("{}\n{rest}", std::process::id()))
}

/// Whether a process with this pid exists. Zombies count.
pub(crate) fn is_alive(pid: Pid) -> bool {
    // A permission error means that the process exists.
    !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH))
}

fn is_postgres_on(pid: Pid, data: &Path) -> bool {
    let number = pid.as_raw_nonzero();
    if cfg!(target_os = "linux") {
        let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        return line
            .split(|byte| *byte == 0)
            .any(|argument| argument == data.as_os_str().as_encoded_bytes());
    }
    let result = std::process::Command::new("ps")
        .args(["-ww", "-o", "command=", "-p", &number.to_string()])
        .output();
    result.is_ok_and(|result| {
        String::from_utf8_lossy(&result.stdout).contains(&*data.to_string_lossy())
    })
}

/// Whether a PostgreSQL answers on this port of 127.0.0.1.
fn answers(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let ask = || -> std::io::Result<u8> {
        let mut stream = TcpStream::connect_timeout(&address, ANSWER_DEADLINE)?;
        stream.set_read_timeout(Some(ANSWER_DEADLINE))?;
        stream.write_all(&SSL_REQUEST)?;
        let mut answer = [0];
        stream.read_exact(&mut answer)?;
        Ok(answer[0])
    };
    matches!(ask(), Ok(b'S' | b'N'))
}
