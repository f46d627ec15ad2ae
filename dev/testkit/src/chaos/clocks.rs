//! Clocks that are wrong and that jump, through libfaketime between a process and the system's
//! time. Monotonic time stays right, as when an administrator sets the clock.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anneal_local_postgres::Binaries;

use crate::{Folder, postgres_binaries};

/// Library folders of Debian, Fedora and similar systems.
const PLACES: [&str; 4] = [
    "/usr/lib",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
];
/// A process re-reads its file once a second.
const LOOKS: &str = "1";

/// Clocks of processes. A file per clock holds its offset.
pub struct Clocks {
    library: PathBuf,
    folder: Folder,
}

impl Clocks {
    /// Clocks without an offset. Returns None, and prints why, where libfaketime is missing.
    pub fn find() -> Option<Self> {
        let libraries = PLACES
            .iter()
            .map(|place| Path::new(place).join("faketime/libfaketimeMT.so.1"));
        let Some(library) = libraries.into_iter().find(|library| library.is_file()) else {
            println!("skipped: there is no libfaketime (scripts/debian.sh faketime)");
            return None;
        };
        Some(Self {
            library,
            folder: Folder::new(),
        })
    }

    /// Sets a clock's offset in seconds. The process notices it within a second.
    pub fn set(&self, name: &str, seconds: i64) {
        // Renaming is atomic, so that no process reads half of the file.
        let half = self
            .folder
            .file(&format!("{name}.half"), &format!("{seconds:+}\n"));
        std::fs::rename(half, self.file(name)).expect("the rename succeeds");
    }

    /// The environment of a process with this clock.
    pub fn variables(&self, name: &str) -> [(&'static str, String); 5] {
        if !self.file(name).exists() {
            self.set(name, 0);
        }
        [
            ("LD_PRELOAD", self.library.display().to_string()),
            (
                "FAKETIME_TIMESTAMP_FILE",
                self.file(name).display().to_string(),
            ),
            ("FAKETIME_CACHE_DURATION", LOOKS.to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("FAKETIME_DISABLE_SHM", "1".to_owned()),
        ]
    }

    /// Binaries of a PostgreSQL with this clock.
    pub fn postgres(&self, name: &str) -> Binaries {
        let (real, folder) = (postgres_binaries(), self.folder.path().join("bin"));
        std::fs::create_dir_all(&folder).expect("a folder");
        let variables = self.variables(name);
        let exports: Vec<String> = variables
            .iter()
            .map(|(name, value)| format!("export {name}='{value}'\n"))
            .collect();
        let exports = exports.concat();
        for (program, before) in [("postgres", exports.as_str()), ("initdb", "")] {
            let (path, real) = (folder.join(program), real.program(program));
            std::fs::write(
                &path,
                format!("#!/bin/sh\n{before}exec '{}' \"$@\"\n", real.display()),
            )
            .expect("the file is written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
                .expect("the file is made executable");
        }
        Binaries::find(Some(&folder)).expect("the wrapped programs are found")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
