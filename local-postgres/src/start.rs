//! Starts or adopts the server of a folder.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::Instant;

use crate::account::Account;
use crate::durability::Durability;
use crate::error::{LocalPostgresError, OnPath, Result};
use crate::folder::{Folder, Lock};
use crate::owners;
use crate::postmaster::{self, Postmaster};
use crate::server::{LocalPostgres, Settings, on_blocking_thread};
use crate::version::Version;
use crate::wait::{DEADLINE_SECONDS, POLL, wait_until};

/// Attempts to start on a free port. Another process may take the port before PostgreSQL binds it.
const PORTS_TRIED: usize = 3;

impl LocalPostgres {
    /// Adopts the server that runs in the folder, or starts one. Returns when it accepts
    /// connections. Several processes may call this at once: one of them starts the server. The
    /// first start creates the cluster, with UTF-8, C.UTF-8 and checksums.
    pub async fn start(settings: Settings) -> Result<LocalPostgres> {
        on_blocking_thread(move || LocalPostgres::start_blocking(&settings)).await
    }

    /// [`LocalPostgres::start`] for callers outside tokio.
    pub fn start_blocking(settings: &Settings) -> Result<LocalPostgres> {
        adopt_or_start(settings)
    }
}

fn adopt_or_start(settings: &Settings) -> Result<LocalPostgres> {
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
    let (folder, _lock) = lock_exclusively(settings, &account)?;
    wait_until_settled(&folder)?;
    if let Some(adopted) = adopt(&folder, settings)? {
        return Ok(adopted);
    }
    account.check_can_enter(settings.binaries.folder())?;
    if !folder.data().exists() {
        initialize(&folder, settings, &account)?;
    }
    if settings.durability == Durability::Test {
        owners::register(&folder)?;
    }
    let postmaster = launch(&folder, settings, &account)?;
    server_handle(&folder, settings, postmaster, false)
}

/// The server of the folder, if it accepts connections. Registers this process as an owner of a
/// test cluster. An error if the folder has another durability, version or port than wanted.
fn adopt(folder: &Folder, settings: &Settings) -> Result<Option<LocalPostgres>> {
    let Some(data_version) = folder
        .read("data/PG_VERSION")
        .and_then(|version| Version::parse(&version))
    else {
        return Ok(None);
    };
    if let Some(made) = folder
        .durability()
        .filter(|made| *made != settings.durability)
    {
        let (folder, wanted) = (folder.path().to_owned(), settings.durability);
        return Err(LocalPostgresError::OtherDurability {
            folder,
            made,
            wanted,
        });
    }
    let programs = settings.binaries.version();
    if data_version.major != programs.major {
        return Err(LocalPostgresError::OtherVersion {
            folder: folder.path().to_owned(),
            holds: data_version.major,
            programs,
        });
    }
    if settings.durability == Durability::Test {
        owners::register(folder)?;
    }
    let Some(postmaster) = Postmaster::read(&folder.data()).filter(Postmaster::accepts_connections)
    else {
        return Ok(None);
    };
    match settings.port {
        Some(wanted) if wanted != postmaster.port => Err(LocalPostgresError::OtherPort {
            running: postmaster.port,
            wanted,
        }),
        _ => server_handle(folder, settings, postmaster, true).map(Some),
    }
}

fn server_handle(
    folder: &Folder,
    settings: &Settings,
    postmaster: Postmaster,
    adopted: bool,
) -> Result<LocalPostgres> {
    Ok(LocalPostgres {
        folder: folder.clone(),
        password: folder.password()?,
        port: postmaster.port,
        socket_folder: postmaster.socket_folder,
        version: folder
            .read("version")
            .and_then(|text| Version::parse(&text))
            .unwrap_or(settings.binaries.version()),
        durability: settings.durability,
        adopted,
    })
}

/// Waits for the exclusive lock. Opens the folder again each time, because the last holder of the
/// lock may have removed it.
fn lock_exclusively(settings: &Settings, account: &Account) -> Result<(Folder, File)> {
    let mut locked = None;
    wait_until("another start of the same folder", || {
        let attempt = Folder::open(&settings.folder, account).and_then(|folder| {
            Ok(folder
                .try_lock(&Lock::Exclusive)?
                .map(|lock| (folder, lock)))
        });
        locked = attempt.transpose();
        locked.is_some()
    })?;
    // `wait_until` returns Ok only if `locked` is set.
    locked.unwrap_or_else(|| unreachable!("waited for a lock"))
}

/// Waits until a server that is starting, recovering or stopping either accepts connections or has
/// ended.
fn wait_until_settled(folder: &Folder) -> Result<()> {
    wait_until("PostgreSQL to start or stop", || {
        Postmaster::read(&folder.data())
            .is_none_or(|postmaster| postmaster.accepts_connections() || !postmaster.is_running())
    })
}

/// Creates the cluster in a temporary folder and renames it, so that a `kill -9` leaves no folder
/// that looks complete.
fn initialize(folder: &Folder, settings: &Settings, account: &Account) -> Result<()> {
    let unfinished = folder.path().join("data.new");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).on("remove", &unfinished)?;
    }
    folder.write("durability", &settings.durability.to_string())?;
    folder.make_password(account)?;
    let mut initdb = account.command(&settings.binaries.program("initdb"), folder.path());
    initdb
        .arg("-D")
        .arg(&unfinished)
        .arg("--pwfile")
        .arg(folder.password_file());
    initdb.args([
        "-U",
        "postgres",
        "--encoding=UTF8",
        "--data-checksums",
        "--no-instructions",
    ]);
    initdb.args(authentication(settings));
    initdb.args(locale(settings.binaries.version()));
    if settings.durability == Durability::Test {
        initdb.arg("--no-sync");
    }
    let result = initdb
        .output()
        .on("run", &settings.binaries.program("initdb"))?;
    if !result.status.success() {
        let output = String::from_utf8_lossy(&result.stderr).trim().to_owned();
        return Err(LocalPostgresError::Program {
            program: "initdb",
            output,
        });
    }
    fs::rename(&unfinished, folder.data()).on("rename", &unfinished)?;
    File::open(folder.path())
        .and_then(|folder| folder.sync_all())
        .on("sync", folder.path())
}

/// The arguments of initdb for authentication. SCRAM derives a key in 4,096 rounds, which takes a
/// client without optimization 20 ms for each connection. Tests open thousands, so a test cluster
/// has one round, or MD5 where the number cannot be set.
fn authentication(settings: &Settings) -> &'static [&'static str] {
    match settings.durability {
        Durability::Durable => &["--auth=scram-sha-256"],
        Durability::Test if settings.binaries.version().major >= 16 => {
            &["--auth=scram-sha-256", "--set=scram_iterations=1"]
        }
        Durability::Test => &["--auth=md5"],
    }
}

/// The arguments of initdb for the locale. Texts are sorted by code point. Case mapping beyond
/// ASCII works where C.UTF-8 exists: PostgreSQL 17 and later provide it, for older versions the
/// operating system must, and macOS does not.
fn locale(version: Version) -> &'static [&'static str] {
    if version.major >= 17 {
        &[
            "--locale=C",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
        ]
    } else if cfg!(target_os = "linux") {
        &["--locale=C.UTF-8"]
    } else {
        &["--locale=C"]
    }
}

/// Starts the server process on the wanted port, or on a free one.
fn launch(folder: &Folder, settings: &Settings, account: &Account) -> Result<Postmaster> {
    for _ in 1..PORTS_TRIED {
        match launch_on(free_port(folder, settings.port)?, folder, settings, account) {
            Err(LocalPostgresError::PortTaken(_)) if settings.port.is_none() => {}
            launched => return launched,
        }
    }
    launch_on(free_port(folder, settings.port)?, folder, settings, account)
}

/// The wanted port, which must be free. Without one: the port of the last start if it is free,
/// otherwise any free port.
fn free_port(folder: &Folder, wanted: Option<u16>) -> Result<u16> {
    // The port if it is free; for 0, a free port that the system picks.
    let bind = |port| {
        TcpListener::bind((Ipv4Addr::LOCALHOST, port))?
            .local_addr()
            .map(|address| address.port())
    };
    if let Some(wanted) = wanted {
        return bind(wanted).map_err(|_| LocalPostgresError::PortTaken(wanted));
    }
    let remembered = folder
        .read("port")
        .and_then(|port| port.parse::<u16>().ok());
    remembered
        .and_then(|port| bind(port).ok())
        .map_or_else(|| bind(0).on("find a free port for", folder.path()), Ok)
}

/// Starts the server process on this port, and waits until it accepts connections. Takes over a
/// stale pid file. Tries again while backends of a killed server are still ending.
fn launch_on(
    port: u16,
    folder: &Folder,
    settings: &Settings,
    account: &Account,
) -> Result<Postmaster> {
    let data = folder.data();
    let socket_folder = folder.make_socket_folder(account)?;
    let started = Instant::now();
    loop {
        if postmaster::pid_file_names_other_process(&data) {
            postmaster::take_over_pid_file(&data).on("rewrite postmaster.pid in", &data)?;
        }
        let (log, log_start) = folder.open_log()?;
        let postgres = settings.binaries.program("postgres");
        let mut command = account.command(&postgres, folder.path());
        command
            .arg("-D")
            .arg(&data)
            .args(arguments(settings, port, &socket_folder));
        command
            .stderr(log.try_clone().on("open", &folder.log())?)
            .stdout(log);
        let mut child = command.spawn().on("run", &postgres)?;
        let ready = wait_until_ready(&mut child, &data);
        // Reaps the process when it ends, so that it does not remain as a zombie.
        let reaper = thread::spawn(move || child.wait());
        if let Some(postmaster) = ready? {
            folder.write("port", &port.to_string())?;
            folder.write("version", &settings.binaries.version().to_string())?;
            return Ok(postmaster);
        }
        let _ = reaper.join();
        let log_text = folder.log_since(log_start);
        if log_text.contains("Address already in use") {
            return Err(LocalPostgresError::PortTaken(port));
        }
        // The backends of a killed server need a moment to notice its end.
        let backends_left = log_text.contains("pre-existing shared memory block");
        if !backends_left || started.elapsed().as_secs() > DEADLINE_SECONDS {
            return Err(LocalPostgresError::Program {
                program: "postgres",
                output: last_lines(&log_text),
            });
        }
        thread::sleep(POLL);
    }
}

/// Waits until the server accepts connections. None if its process ended instead.
fn wait_until_ready(child: &mut Child, data: &Path) -> Result<Option<Postmaster>> {
    let mut ready = None;
    let mut ended: io::Result<bool> = Ok(false);
    wait_until("PostgreSQL to accept connections", || {
        ready = Postmaster::read(data)
            .filter(|found| found.is_process(child.id()) && found.accepts_connections());
        ended = child.try_wait().map(|status| status.is_some());
        ready.is_some() || !matches!(ended, Ok(false))
    })?;
    if ended.on("watch", data)? {
        Ok(None)
    } else {
        Ok(ready)
    }
}

/// The server's command line. PostgreSQL uses the last of several settings with one name, so the
/// settings that this crate needs come last.
fn arguments(settings: &Settings, port: u16, socket_folder: &Path) -> Vec<String> {
    let escaped = socket_folder.display().to_string().replace('"', "\"\"");
    let mut all: Vec<(String, String)> = vec![
        ("timezone".into(), "UTC".into()),
        ("log_timezone".into(), "UTC".into()),
    ];
    if settings.durability == Durability::Test {
        let off = ["fsync", "synchronous_commit", "full_page_writes"];
        all.extend(off.map(|name| (name.into(), "off".into())));
    }
    all.extend(settings.extra.iter().cloned());
    all.extend([
        ("listen_addresses".into(), Ipv4Addr::LOCALHOST.to_string()),
        ("port".into(), port.to_string()),
        ("unix_socket_directories".into(), format!("\"{escaped}\"")),
        ("unix_socket_permissions".into(), "0700".into()),
        ("logging_collector".into(), "off".into()),
    ]);
    all.into_iter()
        .flat_map(|(name, value)| ["-c".to_owned(), format!("{name}={value}")])
        .collect()
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.trim().lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}
