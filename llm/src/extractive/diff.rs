//! Diffs: which files, how much, and the changed lines of those that were edited; new files keep their signatures.

use std::collections::BTreeMap;

use super::{
    code,
    fit::{Best, Scale, lines},
    text, work,
};

/// Changed lines shown of one file.
const SHOWN_LINES: usize = 60;
/// Folders and files that nobody writes by hand.
const GENERATED: [&str; 9] =
    ["build/", "dist/", "node_modules/", "vendor/", "target/", ".lock", ".min.", "__pycache__", "-lock."];

struct File<'a> {
    at: usize,
    path: &'a str,
    new: bool,
    added: usize,
    removed: usize,
}

impl File<'_> {
    fn generated(&self) -> bool {
        GENERATED.iter().any(|part| self.path.contains(part))
    }

    fn dull(&self) -> f32 {
        if self.generated() { 2.0 } else { 0.0 }
    }

    fn kind(&self) -> &'static str {
        if self.new { "A" } else { "M" }
    }

    fn title(&self) -> String {
        format!("{} {} +{} -{}", self.kind(), text::clip(self.path, 160), self.added, self.removed)
    }
}

/// One line per file (`A` new, `M` edited, lines added and removed), below it hunks, changed lines and signatures.
pub(crate) fn digest(diff: &str, scale: Scale<'_>, room: u64) -> String {
    let mut best = Best::for_room(room);
    let mut file: Option<File<'_>> = None;
    let mut folders = Folders::new();
    let (mut files, mut total) = (0, 0);
    for (at, line) in diff.lines().enumerate() {
        work::tick(line.len() + 1);
        total += 1;
        if line.starts_with("diff --git ")
            || line.starts_with("--- ") && file.as_ref().is_none_or(|file| file.added + file.removed > 0)
        {
            finish(&mut best, &mut folders, file.take());
            files += 1;
            let path = line.rsplit(' ').next().unwrap_or_default();
            let path = path.strip_prefix("b/").or_else(|| path.strip_prefix("a/")).unwrap_or(path);
            file = Some(File { at, path, new: false, added: 0, removed: 0 });
        } else if let Some(file) = &mut file {
            offer_line(&mut best, file, at, line);
        } else if !line.trim().is_empty() {
            best.offer(at, 1.0, || text::clip(&text::fold(text::head(line, 400)), 160).into_owned());
        }
    }
    finish(&mut best, &mut folders, file);
    for ((kind, folder), (at, files, added, removed)) in folders {
        best.offer(at, 3.9, || format!("{kind} {}… ×{files} +{added} -{removed}", text::clip(folder, 160)));
    }
    let header = format!("[diff ×{total}, {files}]");
    let left = room.saturating_sub(scale.weigh(&header) + 1);
    let kept = lines(&best.fit(scale, left));
    if kept.is_empty() { scale.clip(&header, room) } else { format!("{header}\n{kept}") }
}

fn offer_line<'a>(best: &mut Best, file: &mut File<'a>, at: usize, line: &'a str) {
    if line.starts_with("new file") {
        file.new = true;
    } else if let Some(path) = line.strip_prefix("+++ ") {
        file.path = path.strip_prefix("b/").unwrap_or(path);
    } else if line.starts_with("@@") {
        if !file.new {
            best.offer(at, 3.4 - file.dull(), || format!(" {}", text::clip(line, 120)));
        }
    } else if let Some(added) = line.strip_prefix('+') {
        file.added += 1;
        let body = text::head(added.trim(), 400);
        let rank = match code::signature(body) {
            Some(kind) if file.new => 0.4 * kind,
            _ if file.new => return,
            _ => 3.6,
        };
        offer_change(best, file, at, rank, line);
    } else if line.starts_with(' ') && !file.new {
        // A line around the edit says where it is.
        if line.trim().len() > 3 {
            offer_change(best, file, at, 2.6, line);
        }
    } else if line.starts_with('-') && !line.starts_with("--- ") {
        file.removed += 1;
        if !file.new {
            offer_change(best, file, at, 3.5, line);
        }
    }
}

fn offer_change(best: &mut Best, file: &File<'_>, at: usize, rank: f32, line: &str) {
    // The longer the edit, the less each line of it says.
    let nth = file.added + file.removed;
    if nth <= SHOWN_LINES || file.new {
        let rank = rank - file.dull() - nth.min(SHOWN_LINES) as f32 * 0.01;
        best.offer(at, rank, || format!(" {}", text::clip(text::head(line, 400).trim_end(), 160)));
    }
}

/// Generated files by folder: place of the first, files, lines added and removed.
type Folders<'a> = BTreeMap<(&'static str, &'a str), (usize, usize, usize, usize)>;

/// Folders of generated files that are told apart.
const MOST_FOLDERS: usize = 256;

fn finish<'a>(best: &mut Best, folders: &mut Folders<'a>, file: Option<File<'a>>) {
    let Some(file) = file else { return };
    let folder = file.path.split_inclusive('/').next().unwrap_or_default();
    if file.generated() && (folders.len() < MOST_FOLDERS || folders.contains_key(&(file.kind(), folder))) {
        let sum = folders.entry((file.kind(), folder)).or_insert((file.at, 0, 0, 0));
        *sum = (sum.0, sum.1 + 1, sum.2 + file.added, sum.3 + file.removed);
        return;
    }
    best.offer(file.at, if file.new { 4.0 } else { 5.0 }, || file.title());
}
