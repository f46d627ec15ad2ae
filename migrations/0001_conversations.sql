-- The schema of anneal. The migrations are its reference: every column says meaning and unit, every index its query.
-- Rules that hold for every table: tenant_id in each; unique constraints contain conversation_id; no trigger, no sequence,
-- no advisory lock or notification that correctness needs. Times are the database's clock.

create table tenant (
    tenant_id   uuid primary key,                               -- the owner of data; comes only from the credential
    name        text not null,                                  -- what people call it
    created_ts  timestamptz not null default now(),             -- when it was made
    constraint tenant_name_unique unique (name)
);

-- The tenant of every caller while the server listens on loopback without authentication.
insert into tenant (tenant_id, name) values ('00000000-0000-7000-8000-000000000001', 'default');

create table ai_conversation (
    tenant_id             uuid not null references tenant,      -- owner
    conversation_id       uuid primary key,                     -- version 7, or derived from tenant and request_id (version 8)
    agent_id              text not null,                        -- the application's agent; '' when not said
    user_id               text not null,                        -- the application's end user; '' when not said
    title                 text not null,                        -- shown in lists; '' when not said
    status                smallint not null default 1,          -- 1 active, 2 archived
    pinned                boolean not null,                     -- shown first by those who want to
    metadata              jsonb not null,                       -- the caller's labels: object of strings
    system_prompt         text not null,                        -- sent before everything else; '' for none
    system_prompt_tokens  bigint not null,                      -- tokens of system_prompt in `encoding`
    policy                jsonb not null,                       -- overrides of the [session] settings: only the keys that are set
    encoding              smallint not null,                    -- 1 o200k_base, 2 cl100k_base; never changes
    revision              bigint not null default 1,            -- + 1 per update by a caller: the etag
    create_digest         bytea,                                -- SHA-256 of the creating request; null when it had no request_id
    last_message_id       bigint not null default 0,            -- id of the newest message = number of messages
    last_role             smallint,                             -- role of the newest message; null when there is none
    turn                  integer not null default 0,           -- turn of the newest message; 0 before the first user message
    counted_message_id    bigint not null default 0,            -- every message up to this one has its token_count
    token_total           bigint not null default 0,            -- tokens of all messages: counts, and estimates where not counted
    stalled_message_id    bigint not null default 0,            -- newest message when compaction last made no progress; 0: never
    created_ts            timestamptz not null default now(),   -- when it was created
    last_activity_ts      timestamptz not null default now(),   -- when its newest message was stored, or it was created
    constraint ai_conversation_status_known check (status in (1, 2)),
    constraint ai_conversation_encoding_known check (encoding in (1, 2)),
    constraint ai_conversation_counted_within check (counted_message_id between 0 and last_message_id)
);

-- list_conversations.
create index ai_conversation_by_activity on ai_conversation (tenant_id, last_activity_ts desc, conversation_id desc);
-- list_conversations of one user.
create index ai_conversation_by_user on ai_conversation (tenant_id, user_id, last_activity_ts desc, conversation_id desc);

-- No foreign key to ai_conversation: only append writes here, under the conversation's row lock, and
-- delete_conversation clears it; a key would cost every message a lookup.
create table ai_message (
    tenant_id             uuid not null,                        -- owner, as in ai_conversation
    conversation_id       uuid not null,                        -- conversation
    message_id            bigint not null,                      -- 1, 2, 3 … without gaps, in commit order
    role                  smallint not null,                    -- 1 user, 2 assistant, 3 tool, 4 system
    turn                  integer not null,                     -- turn it belongs to; 0 before the first user message
    token_estimate        bigint not null,                      -- tokens, estimated at append
    token_count           bigint,                               -- tokens of content in the conversation's encoding; null until counted
    text_bytes            bigint not null,                      -- bytes of the plain text: what byte ranges count in
    content               json not null,                        -- array of parts, byte for byte (json, not jsonb: see docs/decisions/0003)
    content_digest        bytea not null,                       -- SHA-256 of content's text
    tool_outline          json,                                 -- ids and names of its tool calls and results; null when it has none
    metadata              jsonb,                                -- the caller's labels: object of strings; null for none
    request_id            text,                                 -- on the first message of an append: the caller's request_id
    request_digest        bytea,                                -- on the same: SHA-256 of the appended messages
    request_messages      smallint,                             -- on the same: how many messages the append stored
    summary_cache         text,                                 -- summary of this large message; null until made
    summary_tokens        bigint,                               -- tokens of summary_cache
    summary_kind          smallint,                             -- 1 llm, 2 extractive
    summary_model         text,                                 -- the model's or summariser's name
    summary_prompt        integer,                              -- version of the prompt (or rules) that made it
    summary_ts            timestamptz,                          -- when it was stored, or found not to be shorter than the message
    created_ts            timestamptz not null default now(),   -- when it was stored
    primary key (conversation_id, message_id),
    constraint ai_message_role_known check (role between 1 and 4),
    constraint ai_message_tokens_not_negative check (token_count >= 0 and token_estimate >= 0),
    constraint ai_message_request_whole check ((request_id is null) = (request_digest is null)
        and (request_id is null) = (request_messages is null)),
    constraint ai_message_summary_whole check ((summary_cache is null) = (summary_tokens is null)
        and (summary_cache is null) = (summary_kind is null) and summary_cache <> '')
);

-- append: a request_id stores once.
create unique index ai_message_request_id_unique on ai_message (conversation_id, request_id) where request_id is not null;

create table ai_separator (
    tenant_id         uuid not null,                            -- owner
    conversation_id   uuid not null references ai_conversation on delete cascade, -- conversation
    after_message_id  bigint not null,                          -- contexts start after this message; 0: before the first
    created_ts        timestamptz not null default now(),       -- when the user put it
    primary key (conversation_id, after_message_id)
);

create table ai_conversation_checkpoint (
    tenant_id                uuid not null,                     -- owner
    conversation_id          uuid not null references ai_conversation on delete cascade, -- conversation
    first_message_id         bigint not null,                   -- first message that the chain covers: the one after the separator, or 1
    last_message_id          bigint not null,                   -- last message covered: the boundary
    previous_message_id      bigint,                            -- boundary of the checkpoint whose summary was fed forward; null for none
    summary                  text not null,                     -- stands for first_message_id to last_message_id
    token_usage              bigint not null,                   -- tokens of summary
    kind                     smallint not null,                 -- 1 llm, 2 extractive
    model                    text not null,                     -- the model's or summariser's name
    prompt_version           integer not null,                  -- version of the prompt (or rules) that made it
    source_first_message_id  bigint not null,                   -- first message that the summariser read itself
    source_digest            bytea not null,                    -- SHA-256 over ids and content digests of the messages read
    tokens_before            bigint not null,                   -- tokens of the previous summary and the tail before
    tokens_after             bigint not null,                   -- tokens of this summary and the tail after
    generation               integer not null,                  -- 1: made from messages alone; + 1 per summary fed forward
    trigger_kind             smallint not null,                 -- 1 tokens, 2 messages, 3 manual
    focus                    text not null,                     -- what a manual compaction asked to keep; '' for nothing
    request_id               text,                              -- of the manual compaction; null for automatic ones
    duration_ms              bigint not null,                   -- how long the summariser took
    created_ts               timestamptz not null default now(),-- when it was committed
    primary key (conversation_id, first_message_id, last_message_id),
    constraint ai_conversation_checkpoint_chain foreign key (conversation_id, first_message_id, previous_message_id)
        references ai_conversation_checkpoint (conversation_id, first_message_id, last_message_id),
    constraint ai_conversation_checkpoint_advances check (previous_message_id < last_message_id
        and first_message_id <= last_message_id and source_first_message_id <= last_message_id),
    constraint ai_conversation_checkpoint_summary_said check (summary <> '')
);

-- context_material and list_checkpoints: the newest boundary first.
create index idx_ai_conversation_checkpoint_cid_lastmsg on ai_conversation_checkpoint (conversation_id, last_message_id desc);

-- Answers of mutating calls other than append (which keeps its request_id on its first message), for the conversation's life.
create table ai_request (
    tenant_id        uuid not null,                             -- owner
    conversation_id  uuid not null references ai_conversation on delete cascade, -- conversation
    method           text not null,                             -- the call, for example insert_separator
    request_id       text not null,                             -- the caller's
    request_digest   bytea not null,                            -- SHA-256 of the request
    answer           bigint,                                    -- what a repeated call must answer, where state does not say it
    created_ts       timestamptz not null default now(),        -- when it was done
    primary key (conversation_id, method, request_id)
);

create table ai_session (
    tenant_id        uuid not null references tenant,           -- owner
    session_key      text not null,                             -- normalised scope: agent, channel, account, then thread, group or person
    conversation_id  uuid not null references ai_conversation on delete cascade, -- the scope's active conversation
    created_ts       timestamptz not null default now(),        -- when the scope was first seen
    rotated_ts       timestamptz,                               -- when it last got a new conversation; null: never
    primary key (tenant_id, session_key)
);

-- delete_conversation: sessions of a conversation.
create index ai_session_by_conversation on ai_session (conversation_id);
