//! How a PostgreSQL session is opened, and which parameters it gets.

use std::str::FromStr as _;

use sqlx::{
    Connection as _, PgConnection,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};

use super::{
    address::is_protected,
    outage::OutageLog,
    settings::{Pooling, StoreSettings},
};
use crate::error::StoreError;

/// The parameters of every PostgreSQL session. Behind a transaction pooler, every transaction sets
/// them instead ([`SessionSetup::preamble`]).
fn session_parameters(settings: &StoreSettings) -> Vec<(&'static str, String)> {
    let mut parameters = vec![
        (
            "statement_timeout",
            format!("{}ms", settings.statement_timeout_ms),
        ),
        // Ends the transaction of a process that hangs, and with it the transaction's locks.
        ("idle_in_transaction_session_timeout", "5s".into()),
        // A call whose deadline has passed closes its connection. With this interval PostgreSQL
        // ends the statement soon after, not when it sends the result.
        ("client_connection_check_interval", "1s".into()),
        ("default_transaction_isolation", "read committed".into()),
        // Just-in-time compilation of a statement takes 35 ms, longer than most statements run.
        // PostgreSQL would compile some, because the planner overestimates the cost of statements
        // on large tables.
        ("jit", "off".into()),
        // Statements search by keys: a plan for the actual values is no better, and making one
        // takes longer than running it.
        ("plan_cache_mode", "force_generic_plan".into()),
        // A plan is cached, and may have been made when the table was small. It must not scan the
        // whole table after the table has grown.
        ("enable_seqscan", "off".into()),
        // The statement of a page walks an index in order and stops at the page's end. A bitmap
        // scan would read and sort all rows after the page as well, and reading a conversation page
        // by page would take time in proportion to the square of its length.
        ("enable_bitmapscan", "off".into()),
    ];
    if !settings.role.is_empty() {
        parameters.push(("role", settings.role.clone()));
    }
    parameters
}

/// Parses the URL, and adds the session parameters if there is no transaction pooler. All
/// connections are opened with these options.
fn connect_options(settings: &StoreSettings) -> Result<PgConnectOptions, StoreError> {
    // sqlx takes any scheme, and would look for a PostgreSQL at the host of another database.
    if !is_postgres_url(&settings.url) {
        let error = sqlx::Error::Configuration("it is not a postgres:// URL".into());
        return Err(StoreError::BadUrl(error.into()));
    }
    let options = PgConnectOptions::from_str(&settings.url)
        .map_err(|error| StoreError::BadUrl(error.into()))?
        .application_name("anneal");
    if !settings.insecure && !is_protected(&options) {
        return Err(StoreError::Unprotected {
            host: options.get_host().to_owned(),
        });
    }
    Ok(match settings.pooling {
        // 200 is more than the store has statements: each is prepared once per connection.
        Pooling::Session => options
            .statement_cache_capacity(200)
            .options(session_parameters(settings)),
        Pooling::Transaction => options.statement_cache_capacity(0),
    })
}

fn is_postgres_url(url: &str) -> bool {
    url.split_once("://").is_some_and(|(scheme, _)| {
        ["postgres", "postgresql"]
            .iter()
            .any(|known| scheme.eq_ignore_ascii_case(known))
    })
}

/// Opens a connection as the login of the URL, without switching to the settings' role and without
/// a statement timeout. Creating databases and keys and migrating need the rights of the tables'
/// owner; this function does not check whether the login has them.
pub(crate) async fn connect_as_login(settings: &StoreSettings) -> Result<PgConnection, StoreError> {
    let settings = StoreSettings {
        role: String::new(),
        statement_timeout_ms: 0,
        ..settings.clone()
    };
    Ok(PgConnection::connect_with(&connect_options(&settings)?).await?)
}

/// Opens a connection that receives notifications. The listener reconnects by itself.
pub(crate) async fn connect_to_listen(settings: &StoreSettings) -> Result<PgListener, StoreError> {
    let pool_options = PgPoolOptions::new()
        .max_connections(1)
        .max_lifetime(None)
        .idle_timeout(None);
    let pool = pool_options
        .connect_with(connect_options(settings)?)
        .await?;
    let mut listener = PgListener::connect_with(&pool).await?;
    // This pool belongs to the listener alone; nothing else closes it.
    listener.ignore_pool_close_event(true);
    Ok(listener)
}

/// The options with which sessions are opened, and the statements with which transactions begin
/// behind a transaction pooler.
#[derive(Clone)]
pub(crate) struct SessionSetup {
    pub(super) options: PgConnectOptions,
    /// The statements with which every transaction begins behind a transaction pooler; None: there
    /// is no such pooler.
    pub(super) preamble: Option<String>,
}

impl SessionSetup {
    /// Derives the setup from the settings. Fails if the URL is invalid or the connection would be
    /// unprotected.
    pub(crate) fn new(settings: &StoreSettings) -> Result<Self, StoreError> {
        // Behind a pooler, another client may have prepared statements in this session under the
        // names that sqlx will use.
        let preamble = session_parameters(settings).into_iter().fold(
            String::from("deallocate all"),
            |all, (name, value)| {
                format!("{all}; set local {name} = '{}'", value.replace('\'', "''"))
            },
        );
        let preamble = (settings.pooling == Pooling::Transaction).then_some(preamble);
        Ok(Self {
            options: connect_options(settings)?,
            preamble,
        })
    }

    /// The log of outages of this database.
    pub(crate) fn outage_log(&self) -> OutageLog {
        let options = &self.options;
        OutageLog::new(&options.get_socket().map_or_else(
            || format!("{}:{}", options.get_host(), options.get_port()),
            |socket| socket.display().to_string(),
        ))
    }
}
