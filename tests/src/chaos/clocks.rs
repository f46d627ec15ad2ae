//! Clocks that are wrong, and that jump: libfaketime stands between a process and its system's time. What a process measures
//! (how long something takes) stays right, as with a clock that somebody sets.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anneal_local_postgres::Binaries;

use crate::{Folder, postgres_binaries};

/// Where Debian, Fedora and their like put it.
const PLACES: [&str; 4] = ["/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"];
/// A process looks at its file once a second.
const LOOKS: &str = "1";

/// Clocks of processes, each in a file of its own that says how far it is off.
pub struct Clocks {
    library: PathBuf,
    folder: Folder,
}

impl Clocks {
    /// Clocks that are right; None and a line that says so where there is no libfaketime.
    pub fn find() -> Option<Self> {
        let libraries = PLACES.iter().map(|place| Path::new(place).join("faketime/libfaketimeMT.so.1"));
        let Some(library) = libraries.into_iter().find(|library| library.is_file()) else {
            println!("skipped: there is no libfaketime (scripts/debian.sh faketime)");
            return None;
        };
        Some(Self { library, folder: Folder::new() })
    }

    /// From now on (and within a second) this one is off by so many seconds.
    pub fn set(&self, name: &str, seconds: i64) {
        // Renamed into its place, so that nobody reads half of it.
        let half = self.folder.file(&format!("{name}.half"), &format!("{seconds:+}\n"));
        std::fs::rename(half, self.file(name)).expect("renames");
    }

    /// What a process with this clock is started with.
    pub fn variables(&self, name: &str) -> [(&'static str, String); 5] {
        if !self.file(name).exists() {
            self.set(name, 0);
        }
        [
            ("LD_PRELOAD", self.library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.file(name).display().to_string()),
            ("FAKETIME_CACHE_DURATION", LOOKS.to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("FAKETIME_DISABLE_SHM", "1".to_owned()),
        ]
    }

    /// PostgreSQL with this clock.
    pub fn postgres(&self, name: &str) -> Binaries {
        let (real, folder) = (postgres_binaries(), self.folder.path().join("bin"));
        std::fs::create_dir_all(&folder).expect("a folder");
        let variables = self.variables(name);
        let exports: Vec<String> = variables.iter().map(|(name, value)| format!("export {name}='{value}'\n")).collect();
        let exports = exports.concat();
        for (program, before) in [("postgres", exports.as_str()), ("initdb", "")] {
            let (path, real) = (folder.join(program), real.program(program));
            std::fs::write(&path, format!("#!/bin/sh\n{before}exec '{}' \"$@\"\n", real.display())).expect("writes");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("may be run");
        }
        Binaries::find(Some(&folder)).expect("runs as the real one does")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
