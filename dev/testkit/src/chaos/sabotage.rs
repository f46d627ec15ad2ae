//! Breaks promises of docs/reliability.md on purpose, each as a naive implementation would, to
//! prove that the campaigns notice it. The product is not changed: the binary is the one that
//! ships. A sabotage changes the database (`dev/testkit/sabotage/<name>.sql`), sets an environment
//! variable of the processes, or has [`super::Proxy`] change statements or answer appends early.

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use Means::{AnswerEarly, Change, Database, Replace, Variable};

/// One way to break a promise.
pub struct Sabotage {
    /// The sabotage's name, and that of its SQL file.
    pub name: &'static str,
    /// The names of the promises that it breaks. A campaign must find one of these broken before
    /// any other.
    pub promises: &'static [&'static str],
    means: &'static [Means],
}

/// A change that breaks a promise: to the database, to the environment of the processes, to
/// statements, or to the time at which an append is answered.
enum Means {
    /// The owner of the database executes this SQL after the migrations.
    Database(&'static str),
    /// Servers and workers get this environment variable.
    Variable(&'static str, &'static str),
    /// PostgreSQL gets the store's statement with other words.
    Change {
        /// The statement, or a part of it that no other statement has.
        statement: &'static str,
        /// Words of the statement.
        from: &'static str,
        /// The words that replace each occurrence of `from`.
        to: &'static str,
    },
    /// PostgreSQL gets another statement, with the same parameters and columns.
    Replace {
        /// The statement that is replaced, or a part of it that no other statement has.
        statement: &'static str,
        /// The other statement.
        by: &'static str,
    },
    /// An append is answered before it is committed.
    AnswerEarly,
}

const APPEND: &str = include_str!("../../../../store/sql/append.sql");
const APPEND_ONE: &str = include_str!("../../../../store/sql/append_one.sql");
const BOUNDARY: &str = include_str!("../../../../store/sql/boundary.sql");
const FIND_STOPS: &str = include_str!("../../../../store/sql/find_stops.sql");
const FINISH_JOBS: &str = include_str!("../../../../store/sql/finish_jobs.sql");
const GET_CONVERSATION: &str = include_str!("../../../../store/sql/get_conversation.sql");
const HEARTBEAT_JOBS: &str = include_str!("../../../../store/sql/heartbeat_jobs.sql");
const LIST_MESSAGES: &str = include_str!("../../../../store/sql/list_messages.sql");
const MESSAGE_EXTENT: &str = include_str!("../../../../store/sql/message_extent.sql");
const RENEW_MODEL_LEASE: &str = include_str!("../../../../store/sql/renew_model_lease.sql");
const REVOKE_JOB_LEASES: &str = include_str!("../../../../store/sql/revoke_job_leases.sql");
const VOID_CHECKPOINTS: &str = include_str!("../../../../store/sql/void_checkpoints.sql");
/// The start of the statement that locks a claimed job (`store/src/queue/heartbeat.rs`).
const LOCK_CLAIMED_JOB: &str =
    "select generation from ai_job where kind = $1 and conversation_id = $2 and lease = $3";
/// The statement that reads the newest message's id (`store/src/messages/read.rs`).
const NEWEST_ID: &str =
    "select last_message_id from ai_conversation where tenant_id = $1 and conversation_id = $2";

/// The start of the statement that reads an answer to choose it
/// (`store/src/changes/alternatives.rs`).
const READ_ALTERNATIVE: &str = "select question_version, first_ids, last_ids from ai_alternative";

/// Names of the promises that may be found broken if an acknowledged append is lost: its row is
/// missing, another message has its id, or its repetition is stored again.
const IF_APPENDS_ARE_LOST: &[&str] = &["durability", "prefix", "order", "one effect", "content"];
/// Names of the promises that may be found broken if message ids have gaps: the conversation's row
/// or a context disagrees with the ids, or messages that do not exist are never counted.
const IF_IDS_HAVE_GAPS: &[&str] = &["order", "coverage", "jobs"];
/// Names of the promises that may be found broken if jobs are missing: messages are not counted, or
/// a trigger is reached.
const IF_JOBS_ARE_MISSING: &[&str] = &["jobs", "triggers"];
/// The SQL of `dev/testkit/sabotage/<name>.sql`.
macro_rules! database {
    ($name:literal) => {
        Database(include_str!(concat!("../../sabotage/", $name, ".sql")))
    };
}

/// Servers count no messages, so that each append enqueues a job, in which the promise is broken.
const COUNTED_BY_WORKERS: Means = Variable("ANNEAL_APPEND_COUNT_BYTES", "0");

/// A used request id is recognized, but its messages are not compared: an append of other messages
/// is answered with the ids of the first append.
const ANY_BODY: &[Means] = &[
    Change {
        statement: APPEND,
        from: "null from locked where refused",
        to: "null from locked where refused
        union all
        select locked.place, first.message_id - 1, first.turn, c.encoding, false
        from locked
        join ai_message as first
          on first.conversation_id = ($2::uuid[])[locked.place]
         and first.request_id = ($10::text[])[locked.place]
        join ai_conversation as c on c.conversation_id = first.conversation_id
        where locked.refused
          and first.request_digest <> ($17::bytea[])[locked.place]",
    },
    Change {
        statement: APPEND_ONE,
        from: "has_work as \"has_work!\" from accepted",
        to: "has_work as \"has_work!\" from accepted
        union all
        select first.message_id - 1, first.turn, c.encoding, false
        from ai_message as first
        join ai_conversation as c on c.conversation_id = first.conversation_id
        where first.conversation_id = $2
          and first.request_id = $10
          and first.request_digest <> $24",
    },
];

/// A claim deletes the job's row. The later statements about a claimed job succeed without it.
const JOB_GONE_AT_CLAIM: &[Means] = &[
    COUNTED_BY_WORKERS,
    database!("job_gone_at_claim"),
    Replace {
        statement: HEARTBEAT_JOBS,
        by: "select unnest($2::uuid[]) as conversation_id",
    },
    Replace {
        statement: LOCK_CLAIMED_JOB,
        by: "select 1::bigint as generation",
    },
    Replace {
        statement: FINISH_JOBS,
        by: "select unnest($2::uuid[]) as conversation_id, true as clean",
    },
];

/// Leases have no token: every worker that runs a job may extend the job's lease and end the job.
const NO_LEASE_TOKEN: &[Means] = &[
    COUNTED_BY_WORKERS,
    Change {
        statement: HEARTBEAT_JOBS,
        from: "and lease = mine.lease",
        to: "",
    },
    Change {
        statement: LOCK_CLAIMED_JOB,
        from: "and lease = $3",
        to: "",
    },
    Change {
        statement: FINISH_JOBS,
        from: "and lease = mine.lease",
        to: "",
    },
];

/// The check at the commit of a checkpoint does not see separators that were inserted since the
/// claim.
const NO_SEPARATOR: &[Means] = &[
    database!("no_separator"),
    Change {
        statement: BOUNDARY,
        from: "lateral context_boundary(c.conversation_id)",
        to: "lateral sabotage.boundary_of(c.conversation_id)",
    },
];

/// An append whose messages are counted enqueues no job, also if it reaches a trigger.
const UNASKED_TRIGGER: &[Means] = &[
    Change {
        statement: APPEND,
        from: HAS_WORK,
        to: IS_UNCOUNTED,
    },
    Change {
        statement: APPEND_ONE,
        from: HAS_WORK,
        to: IS_UNCOUNTED,
    },
];
/// Words of the statements that append: when they enqueue a counting job. The second condition is
/// that a trigger may be reached.
const HAS_WORK: &str =
    "c.counted_message_id < c.last_message_id or c.quiet_message_id is null as has_work";
/// [`HAS_WORK`] without the second condition.
const IS_UNCOUNTED: &str = "c.counted_message_id < c.last_message_id as has_work";

/// GetConversation and ListMessages do not check the tenant.
const NO_TENANT: &[Means] = &[
    database!("no_tenant"),
    Change {
        statement: GET_CONVERSATION,
        from: "tenant_id = $1",
        to: "true",
    },
    Change {
        statement: LIST_MESSAGES,
        from: "tenant_id = $1",
        to: "true",
    },
    Change {
        statement: MESSAGE_EXTENT,
        from: "tenant_id = $1",
        to: "true",
    },
    Change {
        statement: NEWEST_ID,
        from: "tenant_id = $1",
        to: "true",
    },
];

/// A change of messages does not end the leases of jobs that are under way: their results, which
/// were made from what was there before, are stored after it.
const UNFENCED_CHANGE: &[Means] = &[Change {
    statement: REVOKE_JOB_LEASES,
    from: "from held where is_running",
    to: "from held where false",
}];

/// A checkpoint holds for ever, whatever becomes of the messages in its range.
const STANDING_CHECKPOINT: &[Means] = &[Change {
    statement: VOID_CHECKPOINTS,
    from: "where k.tenant_id = $1",
    to: "where false and k.tenant_id = $1",
}];

/// The answer of a turn is stored whether or not the turn still has its lease. The renewal of the
/// lease, which the answer's transaction begins with, always finds a row.
const UNCHECKED_ANSWER: &[Means] = &[Replace {
    statement: RENEW_MODEL_LEASE,
    by: "with unused as (select $3::uuid, $4::double precision, $5::boolean, $6::boolean)
        update ai_conversation set last_message_id = last_message_id
        where tenant_id = $1 and conversation_id = $2",
}];

/// An answer that is chosen stands again, and what stands after its question stays: all of that
/// counts as messages of the chosen answer.
const UNWITHDRAWN_CHOICE: &[Means] = &[Replace {
    statement: READ_ALTERNATIVE,
    by: "select a.question_version, those.ids as first_ids, those.ids as last_ids
        from ai_alternative as a
        cross join lateral (
            select coalesce(array_agg(m.message_id order by m.message_id), '{}') as ids
            from ai_message as m
            where m.tenant_id = $1 and m.conversation_id = $2 and m.message_id > $3
              and (m.withdrawn_ts is null or exists (
                  select from unnest(a.first_ids, a.last_ids) as run (first, last)
                  where m.message_id between run.first and run.last
              ))
        ) as those
        where a.tenant_id = $1 and a.conversation_id = $2 and a.question_id = $3 and a.number = $4",
}];

impl Sabotage {
    /// The sabotages that campaigns of crashes must notice.
    pub const ALL: &[Self] = &[
        Self {
            name: "asynchronous_commit",
            promises: IF_APPENDS_ARE_LOST,
            means: &[
                database!("asynchronous_commit"),
                Variable("ANNEAL_DATABASE_ALLOW_DATA_LOSS", "true"),
            ],
        },
        Self {
            name: "early_answer",
            promises: IF_APPENDS_ARE_LOST,
            means: &[AnswerEarly],
        },
        Self {
            name: "no_request_id",
            promises: &["one effect"],
            means: &[database!("no_request_id")],
        },
        Self {
            name: "any_body",
            promises: &["one effect"],
            means: ANY_BODY,
        },
        Self {
            name: "ids_from_sequence",
            promises: IF_IDS_HAVE_GAPS,
            means: &[database!("ids_from_sequence")],
        },
        Self {
            name: "gaps",
            promises: IF_IDS_HAVE_GAPS,
            means: &[database!("gaps")],
        },
        Self {
            name: "late_enqueue",
            promises: IF_JOBS_ARE_MISSING,
            means: &[database!("late_enqueue"), COUNTED_BY_WORKERS],
        },
        Self {
            name: "job_gone_at_claim",
            promises: IF_JOBS_ARE_MISSING,
            means: JOB_GONE_AT_CLAIM,
        },
        Self {
            name: "unasked_trigger",
            promises: &["triggers"],
            means: UNASKED_TRIGGER,
        },
        Self {
            name: "no_lease_token",
            promises: &["leases"],
            means: NO_LEASE_TOKEN,
        },
        Self {
            name: "unread_boundary",
            promises: &["checkpoints"],
            means: &[database!("unread_boundary")],
        },
        Self {
            name: "no_separator",
            promises: &["checkpoints", "coverage"],
            means: NO_SEPARATOR,
        },
        Self {
            name: "stale_summary",
            promises: &["checkpoints"],
            means: &[database!("stale_summary")],
        },
        Self {
            name: "counted_twice",
            promises: &["counts"],
            means: &[database!("counted_twice")],
        },
        Self {
            name: "miscounted_append",
            promises: &["exact counts"],
            means: &[database!("miscounted_append")],
        },
        Self {
            name: "no_tenant",
            promises: &["tenants"],
            means: NO_TENANT,
        },
        Self {
            name: "leftovers",
            promises: &["deletion"],
            means: &[database!("leftovers")],
        },
        Self {
            name: "rewritten_content",
            promises: &["content"],
            means: &[database!("rewritten_content")],
        },
        Self {
            name: "kept_content",
            promises: &["withdrawn"],
            means: &[database!("kept_content")],
        },
        Self {
            name: "standing_checkpoint",
            promises: &["derived"],
            means: STANDING_CHECKPOINT,
        },
        Self {
            name: "unfenced_change",
            promises: &["derived"],
            means: UNFENCED_CHANGE,
        },
    ];

    /// The failures of one tenant's calls open the model's breaker for all tenants. The campaign of
    /// one tenant against another must notice it.
    pub const ANYBODYS_BREAKER: &Self = &Self {
        name: "anybodys_breaker",
        promises: &["calls"],
        means: &[database!("anybodys_breaker")],
    };

    /// Servers do not read the stops of the turns that they run, so that only the server that is
    /// asked to stop its own turn does. `tests/tests/faults/races/stops.rs` notices it.
    pub const UNREAD_STOP: &Self = &Self {
        name: "unread_stop",
        promises: &["stops"],
        means: &[Change {
            statement: FIND_STOPS,
            from: "where l.stop is not null",
            to: "where false and l.stop is not null",
        }],
    };

    /// Answers are stored without a look at the turn's lease. The simulation notices it of whole
    /// answers, and `tests/tests/faults/races/stops.rs` of stopped ones.
    pub const UNCHECKED_ANSWER: &Self = &Self {
        name: "unchecked_answer",
        promises: &["derived"],
        means: UNCHECKED_ANSWER,
    };

    /// A choice between answers withdraws nothing. The simulation notices it.
    pub const UNWITHDRAWN_CHOICE: &Self = &Self {
        name: "unwithdrawn_choice",
        promises: &["withdrawn"],
        means: UNWITHDRAWN_CHOICE,
    };

    /// Whether it shows only if clients change stored messages.
    pub fn needs_changes(&self) -> bool {
        let changed = ["withdrawn", "derived"];
        self.promises.iter().all(|name| changed.contains(name))
    }

    /// Executes the sabotage's SQL in the migrated database of this URL. The URL's user owns the
    /// tables.
    pub(super) async fn apply(&self, url: &str) {
        let mut db = PgConnection::connect(url)
            .await
            .expect("the connection succeeds");
        for means in self.means {
            let Database(sql) = means else { continue };
            let done = sqlx::raw_sql(AssertSqlSafe(*sql)).execute(&mut db).await;
            done.unwrap_or_else(|error| {
                panic!(
                    "dev/testkit/sabotage/{}.sql does not fit the schema any more; change it so that it breaks its promise: {error}",
                    self.name
                )
            });
        }
        db.close().await.expect("the connection is closed");
    }

    /// Environment variables of servers and workers.
    pub(super) fn variables(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.means.iter().filter_map(|means| match means {
            Variable(name, value) => Some((*name, *value)),
            _ => None,
        })
    }

    /// The statement that PostgreSQL gets instead of `text`. None if the sabotage does not change
    /// it.
    pub(super) fn rewrite(&self, text: &str) -> Option<String> {
        self.means.iter().find_map(|means| match means {
            Change {
                statement,
                from,
                to,
            } if text.contains(statement.trim()) => Some(text.replace(from, to)),
            Replace { statement, by } if text.contains(statement.trim()) => Some((*by).to_owned()),
            _ => None,
        })
    }

    /// Whether the proxy answers appends before they are committed.
    pub(super) fn answers_early(&self) -> bool {
        self.means.iter().any(|means| matches!(means, AnswerEarly))
    }

    /// Whether the sabotage has no effect without the proxy.
    pub(super) fn needs_proxy(&self) -> bool {
        self.means
            .iter()
            .any(|means| matches!(means, Change { .. } | Replace { .. } | AnswerEarly))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs,
        path::{Path, PathBuf},
    };

    use super::*;

    fn all() -> impl Iterator<Item = &'static Sabotage> {
        Sabotage::ALL.iter().chain([
            Sabotage::ANYBODYS_BREAKER,
            Sabotage::UNREAD_STOP,
            Sabotage::UNCHECKED_ANSWER,
            Sabotage::UNWITHDRAWN_CHOICE,
        ])
    }

    /// The texts of the files below a folder.
    fn texts(folder: &Path) -> Vec<String> {
        let paths = fs::read_dir(folder)
            .expect("the folder exists")
            .map(|entry| entry.expect("an entry").path());
        paths
            .flat_map(|path| {
                if path.is_dir() {
                    texts(&path)
                } else {
                    vec![fs::read_to_string(path).expect("a text")]
                }
            })
            .collect()
    }

    #[test]
    fn every_changed_statement_exists_in_the_store_and_has_the_words_that_are_replaced() {
        let store = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../store");
        let sources = [texts(&store.join("src")), texts(&store.join("sql"))].concat();
        for sabotage in all() {
            for means in sabotage.means {
                let (statement, from) = match means {
                    Change {
                        statement, from, ..
                    } => (statement, *from),
                    Replace { statement, .. } => (statement, ""),
                    _ => continue,
                };
                let name = sabotage.name;
                assert!(
                    sources.iter().any(|text| text.contains(statement.trim())),
                    "{name}: the store has no statement with {statement:?} any more; change dev/testkit/src/chaos/sabotage.rs"
                );
                assert!(
                    statement.contains(from),
                    "{name}: the statement has no {from:?} any more; change dev/testkit/src/chaos/sabotage.rs: {statement}"
                );
            }
        }
    }

    #[test]
    fn every_sql_file_belongs_to_the_sabotage_with_its_name() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("sabotage");
        let files: BTreeSet<(String, String)> = fs::read_dir(folder)
            .expect("the folder exists")
            .map(|entry| {
                let path = entry.expect("an entry").path();
                let name = path.file_stem().expect("a name").to_string_lossy();
                let text = fs::read_to_string(&path).expect("a text");
                (name.into_owned(), text)
            })
            .collect();
        let used = all().flat_map(|sabotage| {
            sabotage.means.iter().filter_map(|means| match means {
                Database(sql) => Some((sabotage.name.to_owned(), (*sql).to_owned())),
                _ => None,
            })
        });
        assert_eq!(files, used.collect());
    }

    #[test]
    fn a_sabotage_changes_its_own_statements_only() {
        let any_body = Sabotage::ALL
            .iter()
            .find(|sabotage| sabotage.name == "any_body")
            .expect("it exists");
        assert_eq!(any_body.rewrite("select 1"), None);
        let changed = any_body.rewrite(APPEND).expect("the append is changed");
        assert!(changed.starts_with(APPEND.trim_end()) && changed.contains("where locked.refused"));
    }
}
