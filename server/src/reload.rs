//! What is read from files, and read again when they change: keys and certificates are replaced without a restart.

use std::{
    fs, io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use tracing::{info, warn};

/// Between two looks at the files.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Why files could not be taken.
#[derive(Debug)]
pub(crate) enum Unread {
    /// One cannot be read.
    File(PathBuf, io::Error),
    /// What they say makes no sense.
    Content(String),
}

type Parse<T> = dyn Fn(&[Vec<u8>]) -> Result<T, String> + Send + Sync;

/// Something that stands in files.
pub(crate) struct Reloaded<T> {
    paths: Vec<PathBuf>,
    parse: Box<Parse<T>>,
    /// What the files said last, whether it made sense or not.
    seen: Mutex<Vec<Vec<u8>>>,
    now: RwLock<Arc<T>>,
}

impl<T: Send + Sync> Reloaded<T> {
    /// Reads the files, in this order.
    pub(crate) fn read(
        paths: Vec<PathBuf>,
        parse: impl Fn(&[Vec<u8>]) -> Result<T, String> + Send + Sync + 'static,
    ) -> Result<Self, Unread> {
        let seen = contents(&paths)?;
        let first = parse(&seen).map_err(Unread::Content)?;
        Ok(Self { paths, parse: Box::new(parse), seen: Mutex::new(seen), now: RwLock::new(Arc::new(first)) })
    }

    /// What holds now.
    pub(crate) fn now(&self) -> Arc<T> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks again and again whether the files have changed, until the future is dropped. What cannot be taken changes
    /// nothing: what held goes on to hold.
    pub(crate) async fn follow(&self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            self.look();
        }
    }

    fn look(&self) {
        let names = || self.paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        let found = match contents(&self.paths) {
            Ok(found) => found,
            Err(Unread::File(path, error)) => {
                warn!("cannot read {} again, what it said still holds: {error}", path.display());
                return;
            }
            Err(Unread::Content(_)) => return,
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == found {
            return;
        }
        match (self.parse)(&found) {
            Ok(new) => {
                *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
                info!("took what {} say now", names());
            }
            Err(why) => warn!("cannot take what {} say now, what they said before still holds: {why}", names()),
        }
        *seen = found;
    }
}

fn contents(paths: &[PathBuf]) -> Result<Vec<Vec<u8>>, Unread> {
    paths.iter().map(|path| fs::read(path).map_err(|error| Unread::File(path.clone(), error))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_changes_nothing_and_what_does_holds_at_once() {
        let path = std::env::temp_dir().join(format!("anneal-reload-{}", uuid::Uuid::new_v4()));
        fs::write(&path, "1").expect("writes");
        let number =
            |files: &[Vec<u8>]| String::from_utf8_lossy(&files[0]).parse::<u32>().map_err(|error| error.to_string());
        let read = Reloaded::read(vec![path.clone()], number).expect("is a number");
        for (text, held) in [("one", 1), ("2", 2), ("", 2), ("3", 3)] {
            fs::write(&path, text).expect("writes");
            read.look();
            assert_eq!(*read.now(), held, "{text}");
        }
        fs::remove_file(&path).expect("removes");
        read.look();
        assert_eq!(*read.now(), 3);
        assert!(matches!(Reloaded::read(vec![path], number), Err(Unread::File(..))));
    }
}
