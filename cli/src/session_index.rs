//! `sessions.json`: the index of the sessions of claw0 and of ai-panel. It has the titles and times
//! of sessions, which their files do not have. An import reads the entry of its file, an export
//! writes it.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use anneal_core::limits::{METADATA_BYTES, METADATA_KEYS};
use anneal_formats::{Format, Head, iso_time};
use anyhow::Context as _;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use tempfile::NamedTempFile;

/// The name of the file.
const FILE: &str = "sessions.json";
/// The field of ai-panel's index that has the sessions.
const PANEL_SESSIONS: &str = "sessions";
/// The folder of claw0's sessions. The index is beside it.
const CLAW0_FOLDER: &str = "sessions";

/// Values by name, as they are written in the file.
type Fields = BTreeMap<String, Box<RawValue>>;

/// The entry of a session in an index.
#[derive(Debug, Clone)]
pub(crate) struct IndexEntry {
    /// The label of the conversation that keeps the entry.
    label: &'static str,
    /// The entry as JSON.
    record: String,
    /// The title; empty: none.
    pub(crate) title: String,
}

/// What an export says about the session that it has written.
#[derive(Debug, Clone, Default)]
pub(crate) struct WrittenSession {
    pub(crate) title: String,
    pub(crate) agent_id: String,
    pub(crate) metadata: BTreeMap<String, String>,
    /// When the conversation was created and when its newest message was stored, in microseconds
    /// since 1970. None: not known.
    pub(crate) created_us: Option<i64>,
    pub(crate) last_us: Option<i64>,
    /// Number of messages.
    pub(crate) messages: u64,
}

/// The index of a session's file.
struct Index {
    path: PathBuf,
    format: Format,
    /// The name of the session's file, and the name without its extension.
    file_name: String,
    stem: String,
}

impl IndexEntry {
    /// Finds the entry of a session's file. None: there is no index, it cannot be read, or it does
    /// not have the session.
    pub(crate) fn find(file: &Path, format: Format) -> Option<Self> {
        let index = Index::of(file, format)?;
        let sessions = index.sessions(&index.read()?)?;
        let record = sessions.get(index.key(&sessions)?.as_str())?;
        let fields = parse(record.get())?;
        let title = fields.get(index.title_field())?;
        Some(Self {
            label: index.label(),
            record: record.get().to_owned(),
            title: serde_json::from_str(title.get()).unwrap_or_default(),
        })
    }

    /// The head with the entry as a label, if it has room for it.
    pub(crate) fn add_to(&self, mut head: Head) -> Head {
        let labels = &mut head.metadata;
        let bytes: usize = labels
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        let fits = labels.len() < METADATA_KEYS
            && bytes + self.label.len() + self.record.len() <= METADATA_BYTES;
        if fits && !labels.contains_key(self.label) {
            labels.insert(self.label.to_owned(), self.record.clone());
        }
        head
    }
}

impl WrittenSession {
    /// Writes the entry of the session's file into the index, and leaves the other entries as they
    /// are. claw0's index is made if there is none. A session of pi has an entry only if it came
    /// from one, or if there is an index of ai-panel.
    pub(crate) fn put_into_index(&self, file: &Path, format: Format) -> anyhow::Result<()> {
        let Some(index) = Index::of(file, format) else {
            return Ok(());
        };
        let path = index.path.clone();
        self.put(&index)
            .with_context(|| format!("cannot write the session into {}", path.display()))
    }

    fn put(&self, index: &Index) -> anyhow::Result<()> {
        let stored = match fs::read_to_string(&index.path) {
            Ok(text) => Some(parse(&text).context("it is not a JSON object")?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let has_index = || {
            stored
                .as_ref()
                .is_some_and(|all| index.sessions(all).is_some())
        };
        let is_wanted = index.format == Format::Claw0
            || self.metadata.contains_key(index.label())
            || has_index();
        if !is_wanted {
            return Ok(());
        }
        let mut all = stored.unwrap_or_default();
        let mut sessions = index.sessions(&all).unwrap_or_default();
        let key = index.key(&sessions).unwrap_or_else(|| index.stem.clone());
        let known = sessions.get(&key).map(|record| record.get());
        let imported = self.metadata.get(index.label()).map(String::as_str);
        let mut entry = known.or(imported).and_then(parse).unwrap_or_default();
        self.update(&mut entry, index)?;
        sessions.insert(key, raw(&entry)?);
        if index.format == Format::Claw0 {
            all = sessions;
        } else {
            all.insert(PANEL_SESSIONS.to_owned(), raw(&sessions)?);
        }
        replace(&index.path, &serde_json::to_string_pretty(&all)?)
    }

    /// Sets the fields of an entry that the conversation has. Others stay.
    fn update(&self, entry: &mut Fields, index: &Index) -> anyhow::Result<()> {
        let ms = |time_us: i64| time_us.div_euclid(1_000);
        let mut set = |name: &str, value: Box<RawValue>| entry.insert(name.to_owned(), value);
        set(index.title_field(), raw(&self.title)?);
        if index.format == Format::Claw0 {
            set("message_count", raw(&self.messages)?);
            if let Some(last) = self.last_us {
                set("last_active", raw(&iso_time(last))?);
            }
        } else {
            set("id", raw(&index.stem)?);
            set("agentId", raw(&self.agent_id)?);
            set("filePath", raw(&index.file_name)?);
            set("messageCount", raw(&self.messages)?);
            if let Some(last) = self.last_us {
                set("lastAt", raw(&ms(last))?);
            }
        }
        let created = match (index.format, self.created_us) {
            (_, None) => return Ok(()),
            (Format::Claw0, Some(created)) => ("created_at", raw(&iso_time(created))?),
            (_, Some(created)) => ("createdAt", raw(&ms(created))?),
        };
        // The time of an imported session is that of its first system.
        entry.entry(created.0.to_owned()).or_insert(created.1);
        Ok(())
    }
}

impl Index {
    /// The index of a session's file. None: sessions of this format, or in this folder, have none.
    fn of(file: &Path, format: Format) -> Option<Self> {
        let file = std::path::absolute(file).ok()?;
        let folder = file.parent()?;
        let path = match format {
            Format::Claw0 if folder.file_name()? == CLAW0_FOLDER => folder.parent()?.join(FILE),
            Format::Pi => folder.join(FILE),
            _ => return None,
        };
        Some(Self {
            path,
            format,
            file_name: file.file_name()?.to_str()?.to_owned(),
            stem: file.file_stem()?.to_str()?.to_owned(),
        })
    }

    /// The content of the file. None: there is no such file, or it is no JSON object.
    fn read(&self) -> Option<Fields> {
        parse(&fs::read_to_string(&self.path).ok()?)
    }

    /// The entries of the sessions. None: the file is no index of this format.
    fn sessions(&self, all: &Fields) -> Option<Fields> {
        if self.format == Format::Claw0 {
            return Some(all.clone());
        }
        parse(all.get(PANEL_SESSIONS)?.get())
    }

    /// The key of the session: its id, or that of the entry which names its file.
    fn key(&self, sessions: &Fields) -> Option<String> {
        if sessions.contains_key(&self.stem) {
            return Some(self.stem.clone());
        }
        let names_file = |record: &RawValue| {
            let path = parse(record.get()).and_then(|fields| fields.get("filePath").cloned());
            path.is_some_and(|path| {
                serde_json::from_str::<String>(path.get()).is_ok_and(|path| path == self.file_name)
            })
        };
        let named = sessions.iter().find(|(_, record)| names_file(record));
        named.map(|(key, _)| key.clone())
    }

    const fn title_field(&self) -> &'static str {
        match self.format {
            Format::Claw0 => "label",
            _ => "title",
        }
    }

    /// The label of the conversation that keeps the entry.
    const fn label(&self) -> &'static str {
        match self.format {
            Format::Claw0 => "claw0.index",
            _ => "pi.index",
        }
    }
}

fn parse(text: &str) -> Option<Fields> {
    serde_json::from_str(text).ok()
}

fn raw(value: &impl Serialize) -> anyhow::Result<Box<RawValue>> {
    Ok(to_raw_value(value)?)
}

/// Replaces the file when the new content is complete. A file that is there keeps its permissions;
/// only the owner may read a new one.
fn replace(path: &Path, content: &str) -> anyhow::Result<()> {
    let folder = path.parent().context("it is in no folder")?;
    let file = NamedTempFile::new_in(folder)?;
    fs::write(file.path(), content)?;
    if let Ok(old) = fs::metadata(path) {
        fs::set_permissions(file.path(), old.permissions())?;
    }
    file.persist(path)?;
    Ok(())
}
