//! Digest of a diff: its files with their numbers of changed lines, the changed lines of edited
//! files, and the signatures of new files.
//!
//! Ranks decide which lines the digest keeps. The lines of highest rank are kept first:
//!
//! - 5.0: the title of an edited file.
//! - 4.0: the title of a new file.
//! - 3.9: a folder of generated files.
//! - 3.6 to 2.6: hunks, changed lines and context lines of an edited file.
//! - 1.8 and less: signatures of a new file.
//! - 1.0: lines before the first file.
//!
//! Later changes of a file rank lower than earlier ones, by up to 0.6. Lines of generated
//! files rank lower by 2.0.

use std::collections::BTreeMap;

use super::{
    candidates::{TopCandidates, lines},
    code, text,
    token_counter::TokenCounter,
    work,
};

/// Most changed lines of one edited file that may be kept.
const MAX_CHANGED_LINES: usize = 60;
/// Parts of the paths of generated files.
const GENERATED: [&str; 9] = [
    "build/",
    "dist/",
    "node_modules/",
    "vendor/",
    "target/",
    ".lock",
    ".min.",
    "__pycache__",
    "-lock.",
];

struct File<'a> {
    /// The number of its first line in the diff.
    first_line: usize,
    path: &'a str,
    is_new: bool,
    /// Lines added so far.
    added: usize,
    /// Lines removed so far.
    removed: usize,
}

impl File<'_> {
    fn is_generated(&self) -> bool {
        GENERATED.iter().any(|part| self.path.contains(part))
    }

    /// Reduces the rank of the lines of a generated file.
    fn rank_penalty(&self) -> f32 {
        if self.is_generated() { 2.0 } else { 0.0 }
    }

    /// `A` for a new file, `M` for an edited one.
    fn kind(&self) -> &'static str {
        if self.is_new { "A" } else { "M" }
    }

    fn title(&self) -> String {
        format!(
            "{} {} +{} -{}",
            self.kind(),
            text::clip(self.path, 160),
            self.added,
            self.removed
        )
    }
}

/// A header with the numbers of lines and files. Then one line per file (`A` new, `M` edited, lines
/// added and removed), followed by the file's hunks, changed lines and signatures.
pub(crate) fn digest(diff: &str, counter: TokenCounter<'_>, budget: u64) -> String {
    let mut best = TopCandidates::for_budget(budget);
    let mut file: Option<File<'_>> = None;
    let mut folders = Folders::new();
    let (mut files, mut total) = (0, 0);
    for (at, line) in diff.lines().enumerate() {
        work::tick(line.len() + 1);
        total += 1;
        // In a diff without `diff --git` lines, `--- ` begins a file. It then comes before all
        // files, or after the changes of another file. Before any change, `--- ` belongs to the
        // header lines of the current file. A removed line that begins with `-- ` looks the same,
        // and is taken for the beginning of a file as well.
        if line.starts_with("diff --git ")
            || line.starts_with("--- ")
                && file
                    .as_ref()
                    .is_none_or(|file| file.added + file.removed > 0)
        {
            close_file(&mut best, &mut folders, file.take());
            files += 1;
            let path = line.rsplit(' ').next().unwrap_or_default();
            let path = path
                .strip_prefix("b/")
                .or_else(|| path.strip_prefix("a/"))
                .unwrap_or(path);
            file = Some(File {
                first_line: at,
                path,
                is_new: false,
                added: 0,
                removed: 0,
            });
        } else if let Some(file) = &mut file {
            read_file_line(&mut best, file, at, line);
        } else if !line.trim().is_empty() {
            best.offer(at, 1.0, || {
                text::clip(&text::fold(text::head(line, 400)), 160).into_owned()
            });
        }
    }
    close_file(&mut best, &mut folders, file);
    for ((kind, folder), totals) in folders {
        best.offer(totals.first_line, 3.9, || {
            format!(
                "{kind} {}… ×{} +{} -{}",
                text::clip(folder, 160),
                totals.files,
                totals.added,
                totals.removed
            )
        });
    }
    let header = format!("[diff ×{total}, {files}]");
    let left = budget.saturating_sub(counter.count(&header) + 1);
    let kept = lines(&best.fit(counter, left));
    if kept.is_empty() {
        counter.clip(&header, budget)
    } else {
        format!("{header}\n{kept}")
    }
}

/// Reads one line of a file: updates the file's path and counts, and offers the line if the digest
/// may have it.
fn read_file_line<'a>(best: &mut TopCandidates, file: &mut File<'a>, at: usize, line: &'a str) {
    if line.starts_with("new file") {
        file.is_new = true;
    } else if let Some(path) = line.strip_prefix("+++ ") {
        file.path = path.strip_prefix("b/").unwrap_or(path);
    } else if line.starts_with("@@") {
        if !file.is_new {
            best.offer(at, 3.4 - file.rank_penalty(), || {
                format!(" {}", text::clip(line, 120))
            });
        }
    } else if let Some(added) = line.strip_prefix('+') {
        file.added += 1;
        let body = text::head(added.trim(), 400);
        let rank = match code::signature_rank(body) {
            Some(rank) if file.is_new => 0.4 * rank,
            _ if file.is_new => return,
            _ => 3.6,
        };
        offer_change(best, file, at, rank, line);
    } else if line.starts_with(' ') && !file.is_new {
        // A context line shows where the edit is.
        if line.trim().len() > 3 {
            offer_change(best, file, at, 2.6, line);
        }
    } else if line.starts_with('-') && !line.starts_with("--- ") {
        file.removed += 1;
        if !file.is_new {
            offer_change(best, file, at, 3.5, line);
        }
    }
}

fn offer_change(best: &mut TopCandidates, file: &File<'_>, at: usize, rank: f32, line: &str) {
    // Later lines of a file rank lower.
    let nth = file.added + file.removed;
    if nth <= MAX_CHANGED_LINES || file.is_new {
        let rank = rank - file.rank_penalty() - nth.min(MAX_CHANGED_LINES) as f32 * 0.01;
        best.offer(at, rank, || {
            format!(" {}", text::clip(text::head(line, 400).trim_end(), 160))
        });
    }
}

/// Generated files by kind and by the first folder of their path, or by the whole path if it has no
/// folder.
type Folders<'a> = BTreeMap<(&'static str, &'a str), FolderTotals>;

/// The generated files of one kind in one folder.
struct FolderTotals {
    /// The number of the first file's first line in the diff.
    first_line: usize,
    files: usize,
    /// Lines added in all files.
    added: usize,
    /// Lines removed in all files.
    removed: usize,
}

/// Most folders of generated files. A generated file in a further folder gets its own title.
const MAX_FOLDERS: usize = 256;

fn close_file<'a>(best: &mut TopCandidates, folders: &mut Folders<'a>, file: Option<File<'a>>) {
    let Some(file) = file else { return };
    let folder = file.path.split_inclusive('/').next().unwrap_or_default();
    if file.is_generated()
        && (folders.len() < MAX_FOLDERS || folders.contains_key(&(file.kind(), folder)))
    {
        let totals = folders
            .entry((file.kind(), folder))
            .or_insert(FolderTotals {
                first_line: file.first_line,
                files: 0,
                added: 0,
                removed: 0,
            });
        totals.files += 1;
        totals.added += file.added;
        totals.removed += file.removed;
        return;
    }
    let rank = if file.is_new { 4.0 } else { 5.0 };
    best.offer(file.first_line, rank, || file.title());
}
