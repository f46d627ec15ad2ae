//! Where an exported file goes: written beside its place, and put there when it is whole.

use std::{
    fs::{File, Metadata, OpenOptions, Permissions},
    io::BufWriter,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anneal_formats::Output;
use anyhow::Context as _;
use tempfile::{TempDir, TempPath};

/// What others may do with a new file: nothing, for it holds what somebody said in private.
const PRIVATE: u32 = 0o600;

/// A file that is being written.
pub(super) enum Target {
    /// It is put into its place when it is whole.
    File(Whole),
    /// A device or a pipe: what is written goes there as it comes.
    Stream(PathBuf),
}

/// A file that does not stand in its place yet.
pub(super) struct Whole {
    path: PathBuf,
    /// Of the file that it is written over.
    permissions: Option<Permissions>,
    /// Beside the place, so that the file can be moved there; gone when dropped.
    folder: TempDir,
}

impl Target {
    /// A place for a file; one that is there is only written over with `--force`. Links are followed.
    pub(super) fn open(path: &Path, force: bool) -> anyhow::Result<Self> {
        let is_there = std::fs::symlink_metadata(path).is_ok();
        anyhow::ensure!(force || !is_there, "{} is there already; --force writes over it", path.display());
        let wrong = || format!("cannot write {}", path.display());
        let path = if is_there { path.canonicalize().with_context(wrong)? } else { path.to_owned() };
        let old: Option<Metadata> = if is_there { Some(std::fs::metadata(&path).with_context(wrong)?) } else { None };
        anyhow::ensure!(!old.as_ref().is_some_and(Metadata::is_dir), "{} is a folder", path.display());
        if old.as_ref().is_some_and(|old| !old.is_file()) {
            return Ok(Self::Stream(path));
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = TempDir::with_prefix_in(".anneal-export-", parent)
            .with_context(|| format!("cannot write in {}", parent.display()))?;
        Ok(Self::File(Whole { permissions: old.map(|old| old.permissions()), path, folder }))
    }

    /// What the writer writes to.
    pub(super) fn output(&self) -> anyhow::Result<Output> {
        match self {
            Self::File(whole) => Ok(Output::File(whole.written())),
            Self::Stream(path) => {
                let file: File = OpenOptions::new().write(true).open(path)?;
                Ok(Output::Stream(Box::new(BufWriter::new(file))))
            }
        }
    }
}

impl Whole {
    fn written(&self) -> PathBuf {
        self.folder.path().join("whole")
    }

    /// The file is whole: puts it into its place.
    pub(super) fn keep(self) -> anyhow::Result<()> {
        let written = TempPath::try_from_path(self.written())?;
        let is_new = self.permissions.is_none();
        let permissions = self.permissions.unwrap_or_else(|| Permissions::from_mode(PRIVATE));
        std::fs::set_permissions(&written, permissions)?;
        if is_new {
            written.persist_noclobber(&self.path)?;
        } else {
            written.persist(&self.path)?;
        }
        Ok(())
    }
}
