//! Values parsed from files, and parsed again when the files change, so that keys and certificates
//! can be replaced without a restart.

use std::{
    fs, io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use tracing::{info, warn};

/// Time between two checks of the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Why the files were not loaded.
#[derive(Debug)]
pub(crate) enum ReloadError {
    /// A file cannot be read.
    File(PathBuf, io::Error),
    /// The contents cannot be parsed.
    Content(String),
}

type Parse<T> = dyn Fn(&[Vec<u8>]) -> Result<T, String> + Send + Sync;

/// A value that is parsed from files.
pub(crate) struct ReloadedFiles<T> {
    paths: Vec<PathBuf>,
    parse: Box<Parse<T>>,
    /// The contents when the files could last be read, even if they could not be parsed, so that
    /// the same contents are reported only once.
    last_read: Mutex<Vec<Vec<u8>>>,
    current: RwLock<Arc<T>>,
}

impl<T: Send + Sync> ReloadedFiles<T> {
    /// Reads and parses the files. `parse` gets their contents in this order.
    pub(crate) fn read(
        paths: Vec<PathBuf>,
        parse: impl Fn(&[Vec<u8>]) -> Result<T, String> + Send + Sync + 'static,
    ) -> Result<Self, ReloadError> {
        let last_read = read_all(&paths)?;
        let first = parse(&last_read).map_err(ReloadError::Content)?;
        Ok(Self {
            paths,
            parse: Box::new(parse),
            last_read: Mutex::new(last_read),
            current: RwLock::new(Arc::new(first)),
        })
    }

    /// The value in force.
    pub(crate) fn current(&self) -> Arc<T> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reloads the files whenever they change, until the future is dropped. If they cannot be read
    /// or parsed, the value in force stays.
    pub(crate) async fn keep_reloading(&self) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            self.reload_if_changed();
        }
    }

    fn reload_if_changed(&self) {
        let path_list = || {
            self.paths
                .iter()
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let found = match read_all(&self.paths) {
            Ok(found) => found,
            Err(ReloadError::File(path, error)) => {
                warn!(
                    "cannot read {} again, its previous content stays in force: {error}",
                    path.display()
                );
                return;
            }
            // Cannot happen: `read_all` parses nothing.
            Err(ReloadError::Content(_)) => return,
        };
        let mut last_read = self
            .last_read
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *last_read == found {
            return;
        }
        match (self.parse)(&found) {
            Ok(new) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
                info!("reloaded {}", path_list());
            }
            Err(why) => warn!(
                "cannot use the new content of {}, the previous content stays in force: {why}",
                path_list()
            ),
        }
        *last_read = found;
    }
}

fn read_all(paths: &[PathBuf]) -> Result<Vec<Vec<u8>>, ReloadError> {
    paths
        .iter()
        .map(|path| fs::read(path).map_err(|error| ReloadError::File(path.clone(), error)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_that_do_not_parse_are_ignored_and_valid_ones_apply_at_the_next_check() {
        let path = std::env::temp_dir().join(format!("anneal-reload-{}", uuid::Uuid::new_v4()));
        fs::write(&path, "1").expect("writes");
        let parse_number = |files: &[Vec<u8>]| {
            String::from_utf8_lossy(&files[0])
                .parse::<u32>()
                .map_err(|error| error.to_string())
        };
        let number = ReloadedFiles::read(vec![path.clone()], parse_number).expect("is a number");
        for (text, expected) in [("one", 1), ("2", 2), ("", 2), ("3", 3)] {
            fs::write(&path, text).expect("writes");
            number.reload_if_changed();
            assert_eq!(*number.current(), expected, "{text}");
        }
        fs::remove_file(&path).expect("removes");
        number.reload_if_changed();
        assert_eq!(*number.current(), 3);
        assert!(matches!(
            ReloadedFiles::read(vec![path], parse_number),
            Err(ReloadError::File(..))
        ));
    }
}
