//! The log of a started server or worker, which says when it is ready.

use anyhow::Context as _;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Child,
};

/// Reads the log of a newly started process until an entry contains the field. Returns the field's
/// value. The rest of the log is read and discarded in the background.
pub(crate) async fn read_log_field(child: &mut Child, field: &str) -> anyhow::Result<String> {
    let [value] = read_log_fields(child, [field]).await?;
    Ok(value)
}

/// Like `read_log_field`, for an entry that contains all of these fields.
pub(crate) async fn read_log_fields<const FIELDS: usize>(
    child: &mut Child,
    fields: [&str; FIELDS],
) -> anyhow::Result<[String; FIELDS]> {
    let mut lines = BufReader::new(child.stderr.take().context("the process's log")?).lines();
    while let Some(line) = lines.next_line().await? {
        let entry: Value = serde_json::from_str(&line).unwrap_or_default();
        let values = fields.map(|field| entry.get(field).and_then(Value::as_str));
        if values.iter().all(Option::is_some) {
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok(values.map(|value| value.unwrap_or_default().to_owned()));
        }
    }
    anyhow::bail!("the process ended before it began its work")
}
