//! `sessions.json`: the index of the sessions of claw0 and of ai-panel. It has the titles and times
//! of sessions, which their files do not have. An import reads the entry of its file, an export
//! writes it.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use anneal_core::limits::{METADATA_BYTES, METADATA_KEYS};
use anneal_formats::{Format, Head, iso_time};
use anyhow::Context as _;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::{RawValue, to_raw_value};
use tempfile::NamedTempFile;

/// The name of the file.
const FILE: &str = "sessions.json";
/// The field of ai-panel's index that has the sessions.
const PANEL_SESSIONS: &str = "sessions";
/// The folder of claw0's sessions. The index is beside it.
const CLAW0_FOLDER: &str = "sessions";

/// An index that has more bytes is not read.
const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// The fields of a JSON object in their order, with values as they are written in the file. Of
/// several fields with one name the last one counts.
#[derive(Debug, Clone, Default)]
struct Fields(Vec<(String, Box<RawValue>)>);

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

/// The entries of the sessions in an index.
#[derive(Debug)]
struct Sessions {
    entries: Fields,
    /// Places of the entries, by key.
    by_key: HashMap<String, usize>,
    /// Places of the entries, by the file that they name.
    by_file: HashMap<String, usize>,
}

/// The index that an import has read last. Files of one folder have one index, so it is parsed once
/// for all of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastIndex(Arc<Mutex<Option<ReadIndex>>>);

#[derive(Debug)]
struct ReadIndex {
    path: PathBuf,
    format: Format,
    modified: SystemTime,
    /// None: the file is no index of this format.
    sessions: Option<Sessions>,
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
    /// Finds the entry of a session's file. None: there is no index of this format, or it does not
    /// have the session. Fails if the index cannot be read.
    pub(crate) fn find(
        file: &Path,
        format: Format,
        last: &LastIndex,
    ) -> anyhow::Result<Option<Self>> {
        let Some(index) = Index::of(file, format) else {
            return Ok(None);
        };
        let mut last = last.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sessions = index
            .read(&mut last)
            .with_context(|| format!("no title is taken from {FILE}"))?;
        let Some((_, record)) = sessions.and_then(|sessions| sessions.entry(&index)) else {
            return Ok(None);
        };
        let title = parse(record.get())
            .and_then(|fields| serde_json::from_str(fields.get(index.title_field())?.get()).ok());
        Ok(Some(Self {
            label: index.label(),
            record: record.get().to_owned(),
            title: title.unwrap_or_default(),
        }))
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
        let _lock = index.lock();
        let stored = match index.read_text() {
            Ok(text) => Some(parse(&text).context("it is not a JSON object")?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let entries = stored.as_ref().and_then(|all| index.entries(all));
        let is_wanted = index.format == Format::Claw0
            || self.metadata.contains_key(index.label())
            || entries.is_some();
        if !is_wanted {
            return Ok(());
        }
        // OpenClaw has a file of this name, too, with other fields.
        anyhow::ensure!(
            stored.is_none() || entries.is_some(),
            "it is the index of another system, and stays as it is"
        );
        let mut all = stored.unwrap_or_default();
        let sessions = Sessions::of(entries.unwrap_or_default());
        let known = sessions.entry(index);
        let imported = self.metadata.get(index.label()).map(String::as_str);
        let record = known.map(|(_, record)| record.get()).or(imported);
        let mut entry = record.and_then(parse).unwrap_or_default();
        self.update(&mut entry, index)?;
        let key = known.map_or_else(|| index.stem.clone(), |(key, _)| key.to_owned());
        let mut entries = sessions.entries;
        entries.set(&key, raw(&entry)?);
        if index.format == Format::Claw0 {
            all = entries;
        } else {
            all.set(PANEL_SESSIONS, raw(&entries)?);
        }
        replace(&index.path, &serde_json::to_string_pretty(&all)?)
    }

    /// Sets the fields of an entry that the conversation has. Others stay.
    fn update(&self, entry: &mut Fields, index: &Index) -> anyhow::Result<()> {
        let ms = |time_us: i64| time_us.div_euclid(1_000);
        let mut set = |name: &str, value: Box<RawValue>| entry.set(name, value);
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
        if entry.get(created.0).is_none() {
            entry.set(created.0, created.1);
        }
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

    /// Keeps other exports from changing the index until the result is dropped. The systems whose
    /// index it is do not know this lock. None: the file system has no locks of folders.
    fn lock(&self) -> Option<File> {
        let folder = File::open(self.path.parent()?).ok()?;
        folder.lock().ok()?;
        Some(folder)
    }

    fn read_text(&self) -> io::Result<String> {
        if fs::metadata(&self.path)?.len() > MOST_BYTES {
            let error = format!("it has more than {MOST_BYTES} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, error));
        }
        fs::read_to_string(&self.path)
    }

    /// The sessions of the index: those of `last`, unless it is another file or has changed since.
    /// None: there is no file, or it is no index of this format.
    fn read<'a>(&self, last: &'a mut Option<ReadIndex>) -> anyhow::Result<Option<&'a Sessions>> {
        let modified = match fs::metadata(&self.path) {
            Ok(metadata) => metadata.modified()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let is_last = last.as_ref().is_some_and(|read| {
            (&read.path, read.format, read.modified) == (&self.path, self.format, modified)
        });
        if !is_last {
            let all = parse(&self.read_text()?).context("it is not a JSON object")?;
            *last = Some(ReadIndex {
                path: self.path.clone(),
                format: self.format,
                modified,
                sessions: self.entries(&all).map(Sessions::of),
            });
        }
        Ok(last.as_ref().and_then(|read| read.sessions.as_ref()))
    }

    /// The entries of the sessions. None: the file is no index of this format.
    fn entries(&self, all: &Fields) -> Option<Fields> {
        if self.format == Format::Claw0 {
            return Some(all.clone());
        }
        parse(all.get(PANEL_SESSIONS)?.get())
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

impl Sessions {
    fn of(entries: Fields) -> Self {
        let (mut by_key, mut by_file) = (HashMap::new(), HashMap::new());
        for (place, (key, record)) in entries.0.iter().enumerate() {
            by_key.insert(key.clone(), place);
            let path = parse(record.get()).and_then(|fields| {
                serde_json::from_str::<String>(fields.get("filePath")?.get()).ok()
            });
            if let Some(path) = path {
                by_file.entry(path).or_insert(place);
            }
        }
        Self {
            entries,
            by_key,
            by_file,
        }
    }

    /// The key and the entry of the session: the one with its id, or the one that names its file.
    fn entry(&self, index: &Index) -> Option<(&str, &RawValue)> {
        let by_key = self.by_key.get(&index.stem);
        let place = by_key.or_else(|| self.by_file.get(&index.file_name))?;
        let (key, record) = self.entries.0.get(*place)?;
        Some((key, record))
    }
}

impl Fields {
    fn get(&self, name: &str) -> Option<&RawValue> {
        let field = self.0.iter().rfind(|(other, _)| other == name);
        field.map(|(_, value)| value.as_ref())
    }

    /// Sets a field in its place. A new one comes last.
    fn set(&mut self, name: &str, value: Box<RawValue>) {
        match self.0.iter_mut().rfind(|(other, _)| other == name) {
            Some(field) => field.1 = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = object.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(InOrder)
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

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn session(title: &str) -> WrittenSession {
        WrittenSession {
            title: title.to_owned(),
            ..WrittenSession::default()
        }
    }

    #[test]
    fn sessions_that_are_written_at_once_are_all_in_the_index() {
        let folder = tempfile::tempdir().expect("a folder");
        let sessions = &folder.path().join(CLAW0_FOLDER);
        fs::create_dir(sessions).expect("a folder");
        thread::scope(|scope| {
            for writer in 0..4 {
                scope.spawn(move || {
                    for number in 0..50 {
                        let file = sessions.join(format!("{writer}-{number}.jsonl"));
                        let written = session("t").put_into_index(&file, Format::Claw0);
                        written.expect("is written");
                    }
                });
            }
        });
        let index = fs::read_to_string(folder.path().join(FILE)).expect("is there");
        assert_eq!(parse(&index).expect("is an index").0.len(), 200);
    }

    #[test]
    fn entries_keep_their_order_and_their_writing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE);
        let before =
            r#"{"version":1.0,"sessions":{"z":{"b":1e1,"a":""},"m":{"title":"old"},"a":{}}}"#;
        fs::write(&path, before).expect("is written");
        session("new")
            .put_into_index(&folder.path().join("m.jsonl"), Format::Pi)
            .expect("is written");
        let all = parse(&fs::read_to_string(&path).expect("is there")).expect("is an index");
        let names: Vec<&str> = all.0.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["version", "sessions"]);
        let sessions = all.get("sessions").expect("is there").get();
        let start = r#"{"z":{"b":1e1,"a":""},"m":{"title":"new","#;
        assert!(sessions.starts_with(start), "{sessions}");
        assert!(sessions.ends_with(r#","a":{}}"#), "{sessions}");
    }

    #[test]
    fn the_index_of_another_system_stays_as_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE);
        let openclaw = r#"{"agent:main:main":{"sessionId":"s"}}"#;
        fs::write(&path, openclaw).expect("is written");
        let file = folder.path().join("s.jsonl");
        session("t")
            .put_into_index(&file, Format::Pi)
            .expect("a session of pi needs no index");
        let mut of_panel = session("t");
        of_panel.metadata.insert("pi.index".into(), "{}".into());
        assert!(of_panel.put_into_index(&file, Format::Pi).is_err());
        assert_eq!(fs::read_to_string(&path).expect("is there"), openclaw);
        let found = IndexEntry::find(&file, Format::Pi, &LastIndex::default());
        assert!(found.expect("is no error").is_none());
    }

    #[test]
    fn an_index_is_parsed_again_only_when_it_changes() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, file) = (folder.path().join(FILE), folder.path().join("s.jsonl"));
        let last = LastIndex::default();
        let title = || {
            let found = IndexEntry::find(&file, Format::Pi, &last).expect("is read");
            found.map(|entry| entry.title)
        };
        let write = |content: &str, seconds: u64| {
            fs::write(&path, content).expect("is written");
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            let index = File::options().write(true).open(&path).expect("opens");
            index.set_modified(time).expect("sets the time");
        };
        assert_eq!(title(), None);
        write(r#"{"sessions":{"s":{"title":"one"}}}"#, 1);
        assert_eq!(title().as_deref(), Some("one"));
        write("broken", 1);
        assert_eq!(title().as_deref(), Some("one"), "it is not read again");
        write(r#"{"sessions":{"k":{"filePath":"s.jsonl"}}}"#, 2);
        assert_eq!(title().as_deref(), Some(""), "an entry without a title");
        write("broken", 3);
        assert!(IndexEntry::find(&file, Format::Pi, &last).is_err());
    }
}
