//! Bytes that PostgreSQL writes to its log (WAL). pg_walinspect tells page images from records.

use crate::database::Database;

/// Bytes of the log per message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WalBytes {
    pub(crate) with_page_images: f64,
    pub(crate) without_page_images: f64,
}

/// Makes a checkpoint, and installs what `bytes_since` needs.
pub(crate) async fn prepare(database: &Database) -> anyhow::Result<()> {
    let sql = "create extension if not exists pg_walinspect; checkpoint";
    database.run(sql).await.map(drop)
}

/// The current end of the log.
pub(crate) async fn position(database: &Database) -> anyhow::Result<String> {
    database.run("select pg_current_wal_lsn()").await
}

/// Bytes of the log since `from`, per message.
pub(crate) async fn bytes_since(
    database: &Database,
    from: &str,
    messages: usize,
) -> anyhow::Result<WalBytes> {
    let to = position(database).await?;
    let all = database
        .number(&format!("select pg_wal_lsn_diff('{to}', '{from}')"))
        .await?;
    let images =
        format!("select coalesce(sum(fpi_size), 0) from pg_get_wal_stats('{from}', '{to}')");
    let images = database.number(&images).await?;
    Ok(WalBytes {
        with_page_images: all / messages as f64,
        without_page_images: (all - images) / messages as f64,
    })
}
