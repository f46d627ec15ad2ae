//! From a folder to a server that accepts connections.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use crate::account::Account;
use crate::binaries::Version;
use crate::error::{LocalPostgresError, OnPath, Result};
use crate::folder::{Folder, Lock};
use crate::owners;
use crate::postmaster::{self, Postmaster};
use crate::server::{Durability, LocalPostgres, Settings};

/// Between two looks at something that another process does.
const POLL: Duration = Duration::from_millis(5);
/// For whatever another process does: far above what initdb (1 to 5 s) or a shutdown takes.
const PATIENCE_SECONDS: u64 = 60;
/// A free port may be taken between our look and PostgreSQL's bind; three in a row are no coincidence.
const PORTS_TRIED: usize = 3;

pub(crate) fn adopt_or_start(settings: &Settings) -> Result<LocalPostgres> {
    let account = Account::current()?;
    let folder = Folder::open(&settings.folder, &account)?;
    if settings.durability == Durability::Test {
        owners::remove_abandoned(&folder, &account);
    }
    if let Some(_lock) = folder.try_lock(&Lock::Shared)?
        && let Some(adopted) = adopt(&folder, settings)?
    {
        return Ok(adopted);
    }
    let (folder, _lock) = lock_alone(settings, &account)?;
    settle(&folder)?;
    if let Some(adopted) = adopt(&folder, settings)? {
        return Ok(adopted);
    }
    account.check_reaches(settings.binaries.folder())?;
    if !folder.data().exists() {
        initialise(&folder, settings, &account)?;
    }
    if settings.durability == Durability::Test {
        owners::register(&folder)?;
    }
    let postmaster = launch(&folder, settings, &account)?;
    handle(&folder, settings, postmaster, false)
}

/// The server of the folder, if it accepts connections. Refuses a folder of another kind than the wanted one.
fn adopt(folder: &Folder, settings: &Settings) -> Result<Option<LocalPostgres>> {
    let Some(holds) = folder.read("data/PG_VERSION").and_then(|version| Version::parse(&version)) else {
        return Ok(None);
    };
    if let Some(made) = folder.durability().filter(|made| *made != settings.durability) {
        let (folder, wanted) = (folder.path().to_owned(), settings.durability);
        return Err(LocalPostgresError::OtherDurability { folder, made, wanted });
    }
    let programs = settings.binaries.version();
    if holds.major != programs.major {
        return Err(LocalPostgresError::OtherVersion {
            folder: folder.path().to_owned(),
            holds: holds.major,
            programs,
        });
    }
    if settings.durability == Durability::Test {
        owners::register(folder)?;
    }
    let Some(postmaster) = Postmaster::read(&folder.data()).filter(Postmaster::accepts) else { return Ok(None) };
    match settings.port {
        Some(wanted) if wanted != postmaster.port => {
            Err(LocalPostgresError::OtherPort { running: postmaster.port, wanted })
        }
        _ => handle(folder, settings, postmaster, true).map(Some),
    }
}

fn handle(folder: &Folder, settings: &Settings, postmaster: Postmaster, adopted: bool) -> Result<LocalPostgres> {
    Ok(LocalPostgres {
        folder: folder.clone(),
        password: folder.password()?,
        port: postmaster.port,
        socket_folder: postmaster.socket_folder,
        version: folder.read("version").and_then(|text| Version::parse(&text)).unwrap_or(settings.binaries.version()),
        durability: settings.durability,
        adopted,
    })
}

/// Waits for the lock. Opens the folder anew each time, as its last holder may have removed it.
fn lock_alone(settings: &Settings, account: &Account) -> Result<(Folder, File)> {
    let mut locked = None;
    wait_until("another start of the same folder", || {
        let attempt = Folder::open(&settings.folder, account)
            .and_then(|folder| Ok(folder.try_lock(&Lock::Alone)?.map(|lock| (folder, lock))));
        locked = attempt.transpose();
        locked.is_some()
    })?;
    // The wait ends well only with something in hand.
    locked.unwrap_or_else(|| unreachable!("waited for a lock"))
}

/// Waits until a server that is just starting, recovering or stopping, in nobody's care, has come to rest.
fn settle(folder: &Folder) -> Result<()> {
    wait_until("PostgreSQL to start or stop", || {
        Postmaster::read(&folder.data()).is_none_or(|postmaster| postmaster.accepts() || !postmaster.lives())
    })
}

/// Makes the cluster beside its final place, so that a `kill -9` in the middle leaves nothing that looks complete.
fn initialise(folder: &Folder, settings: &Settings, account: &Account) -> Result<()> {
    let half_made = folder.path().join("data.new");
    if half_made.exists() {
        fs::remove_dir_all(&half_made).on("remove", &half_made)?;
    }
    folder.write("durability", &settings.durability.to_string())?;
    folder.make_password(account)?;
    let mut initdb = account.command(&settings.binaries.program("initdb"), folder.path());
    initdb.arg("-D").arg(&half_made).arg("--pwfile").arg(folder.password_file());
    initdb.args(["-U", "postgres", "--auth=scram-sha-256", "--encoding=UTF8", "--data-checksums", "--no-instructions"]);
    initdb.args(locale(settings.binaries.version()));
    if settings.durability == Durability::Test {
        initdb.arg("--no-sync");
    }
    let said = initdb.output().on("run", &settings.binaries.program("initdb"))?;
    if !said.status.success() {
        let output = String::from_utf8_lossy(&said.stderr).trim().to_owned();
        return Err(LocalPostgresError::Program { program: "initdb", output });
    }
    fs::rename(&half_made, folder.data()).on("rename", &half_made)?;
    File::open(folder.path()).and_then(|folder| folder.sync_all()).on("sync", folder.path())
}

/// Order by code point everywhere, and upper and lower case beyond ASCII where it can be had: from 17 on PostgreSQL
/// brings C.UTF-8 itself; before that the system must have it, and macOS does not.
fn locale(version: Version) -> &'static [&'static str] {
    if version.major >= 17 {
        &["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    } else if cfg!(target_os = "linux") {
        &["--locale=C.UTF-8"]
    } else {
        &["--locale=C"]
    }
}

fn launch(folder: &Folder, settings: &Settings, account: &Account) -> Result<Postmaster> {
    for _ in 1..PORTS_TRIED {
        match launch_on(free_port(folder, settings.port)?, folder, settings, account) {
            Err(LocalPostgresError::PortTaken(_)) if settings.port.is_none() => {}
            launched => return launched,
        }
    }
    launch_on(free_port(folder, settings.port)?, folder, settings, account)
}

/// The wanted port, which must be free; else the remembered one if it is; else any.
fn free_port(folder: &Folder, wanted: Option<u16>) -> Result<u16> {
    let free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port))?.local_addr().map(|address| address.port());
    if let Some(wanted) = wanted {
        return free(wanted).map_err(|_| LocalPostgresError::PortTaken(wanted));
    }
    let remembered = folder.read("port").and_then(|port| port.parse::<u16>().ok());
    remembered.and_then(|port| free(port).ok()).map_or_else(|| free(0).on("find a free port for", folder.path()), Ok)
}

fn launch_on(port: u16, folder: &Folder, settings: &Settings, account: &Account) -> Result<Postmaster> {
    let data = folder.data();
    let socket_folder = folder.make_socket_folder(account)?;
    let started = Instant::now();
    loop {
        if postmaster::names_a_stranger(&data) {
            postmaster::take_over_pid_file(&data).on("rewrite postmaster.pid in", &data)?;
        }
        let (log, log_start) = folder.open_log()?;
        let postgres = settings.binaries.program("postgres");
        let mut command = account.command(&postgres, folder.path());
        command.arg("-D").arg(&data).args(arguments(settings, port, &socket_folder));
        command.stderr(log.try_clone().on("open", &folder.log())?).stdout(log);
        let mut child = command.spawn().on("run", &postgres)?;
        let ended = wait_until_ready(&mut child, &data);
        // Collects it when it ends, however long that takes, lest a dead postmaster keep its number.
        let collector = thread::spawn(move || child.wait());
        if let Some(postmaster) = ended? {
            folder.write("port", &port.to_string())?;
            folder.write("version", &settings.binaries.version().to_string())?;
            return Ok(postmaster);
        }
        let _ = collector.join();
        let said = folder.log_since(log_start);
        if said.contains("Address already in use") {
            return Err(LocalPostgresError::PortTaken(port));
        }
        // Backends of a killed server need a moment to notice it.
        let backends_left = said.contains("pre-existing shared memory block");
        if !backends_left || started.elapsed().as_secs() > PATIENCE_SECONDS {
            return Err(LocalPostgresError::Program { program: "postgres", output: last_lines(&said) });
        }
        thread::sleep(POLL);
    }
}

/// None when it ended instead.
fn wait_until_ready(child: &mut Child, data: &Path) -> Result<Option<Postmaster>> {
    let mut ready = None;
    let mut ended: io::Result<bool> = Ok(false);
    wait_until("PostgreSQL to accept connections", || {
        ready = Postmaster::read(data).filter(|found| found.is_process(child.id()) && found.accepts());
        ended = child.try_wait().map(|status| status.is_some());
        ready.is_some() || !matches!(ended, Ok(false))
    })?;
    if ended.on("watch", data)? { Ok(None) } else { Ok(ready) }
}

/// Of two settings with one name PostgreSQL takes the last, so those that this crate relies on come last.
fn arguments(settings: &Settings, port: u16, socket_folder: &Path) -> Vec<String> {
    let quoted = socket_folder.display().to_string().replace('"', "\"\"");
    let mut all: Vec<(String, String)> = vec![("timezone".into(), "UTC".into()), ("log_timezone".into(), "UTC".into())];
    if settings.durability == Durability::Test {
        let off = ["fsync", "synchronous_commit", "full_page_writes"];
        all.extend(off.map(|name| (name.into(), "off".into())));
    }
    all.extend(settings.extra.iter().cloned());
    all.extend([
        ("listen_addresses".into(), Ipv4Addr::LOCALHOST.to_string()),
        ("port".into(), port.to_string()),
        ("unix_socket_directories".into(), format!("\"{quoted}\"")),
        ("unix_socket_permissions".into(), "0700".into()),
        ("logging_collector".into(), "off".into()),
    ]);
    all.into_iter().flat_map(|(name, value)| ["-c".to_owned(), format!("{name}={value}")]).collect()
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.trim().lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

/// Looks every few milliseconds, for a minute at most.
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) -> Result<()> {
    let started = Instant::now();
    while !done() {
        if started.elapsed().as_secs() >= PATIENCE_SECONDS {
            return Err(LocalPostgresError::Timeout { what: what.to_owned(), seconds: PATIENCE_SECONDS });
        }
        thread::sleep(POLL);
    }
    Ok(())
}
