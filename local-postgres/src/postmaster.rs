//! The running server, seen from outside: its `postmaster.pid`, its process, its port. Starts no program on Linux.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// How long a server on this machine may take to answer one packet.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// SSLRequest of the wire protocol: length 8, code 80877103. Every PostgreSQL answers it with one byte, S or N.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// What `postmaster.pid` says.
#[derive(Debug)]
pub(crate) struct Postmaster {
    pid: Pid,
    data: PathBuf,
    pub(crate) port: u16,
    pub(crate) socket_folder: PathBuf,
    ready: bool,
}

impl Postmaster {
    /// None when the file is missing or not fully written yet.
    pub(crate) fn read(data: &Path) -> Option<Postmaster> {
        let text = fs::read_to_string(data.join("postmaster.pid")).ok()?;
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        // pid, data folder, start time, port, socket folder, listen address, shared memory, status
        let &[pid, folder, _, port, socket_folder, _, _, status] = lines.as_slice() else { return None };
        Some(Postmaster {
            pid: Pid::from_raw(pid.parse().ok()?)?,
            data: folder.into(),
            port: port.parse().ok()?,
            socket_folder: socket_folder.into(),
            // A standby takes questions too.
            ready: matches!(status, "ready" | "standby"),
        })
    }

    pub(crate) fn is_process(&self, id: u32) -> bool {
        u32::try_from(self.pid.as_raw_nonzero().get()) == Ok(id)
    }

    /// Whether its process lives and is a PostgreSQL on this very folder, not a stranger that got its number.
    pub(crate) fn lives(&self) -> bool {
        is_postgres_on(self.pid, &self.data)
    }

    /// Whether clients may connect: it lives, says so, and answers on its port.
    pub(crate) fn accepts(&self) -> bool {
        self.ready && self.lives() && answers(self.port)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // It may have ended since; whoever stops it waits for that anyway.
        let _ = kill_process(self.pid, signal);
    }
}

/// Whether the pid file names a process that lives and is not PostgreSQL on this folder: its number was given away again
/// after a crash, or it is a dead child that nobody has collected. PostgreSQL would take it for itself and refuse to start.
pub(crate) fn names_a_stranger(data: &Path) -> bool {
    let text = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    let pid = text.lines().next().and_then(|pid| pid.trim().parse().ok()).and_then(Pid::from_raw);
    pid.is_some_and(|pid| is_alive(pid) && !is_postgres_on(pid, data))
}

/// Makes a pid file name us in place of the stranger. PostgreSQL knows that its parent cannot be another postmaster, so
/// it takes the file for stale, and then checks by the shared memory it names that no backend is left. Removing the file
/// would remove that check.
pub(crate) fn take_over_pid_file(data: &Path) -> std::io::Result<()> {
    let path = data.join("postmaster.pid");
    let text = fs::read_to_string(&path)?;
    let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
    fs::write(&path, format!("{}\n{rest}", std::process::id()))
}

/// Whether a process of that number exists, uncollected dead ones included.
pub(crate) fn is_alive(pid: Pid) -> bool {
    // Refused permission means that it exists.
    !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH))
}

fn is_postgres_on(pid: Pid, data: &Path) -> bool {
    let number = pid.as_raw_nonzero();
    if cfg!(target_os = "linux") {
        let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        return line.split(|byte| *byte == 0).any(|argument| argument == data.as_os_str().as_encoded_bytes());
    }
    let said = std::process::Command::new("ps").args(["-ww", "-o", "command=", "-p", &number.to_string()]).output();
    said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains(&*data.to_string_lossy()))
}

/// Whether a PostgreSQL answers on this port of 127.0.0.1.
fn answers(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let ask = || -> std::io::Result<u8> {
        let mut stream = TcpStream::connect_timeout(&address, ANSWER_WITHIN)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.write_all(&SSL_REQUEST)?;
        let mut answer = [0];
        stream.read_exact(&mut answer)?;
        Ok(answer[0])
    };
    matches!(ask(), Ok(b'S' | b'N'))
}
