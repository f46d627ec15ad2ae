-- Messages can be withdrawn, restored, edited and erased. `ai_message` and `ai_conversation_checkpoint` hold only what stands.
-- What no longer stands is moved to tables of its own, so that no statement that reads contexts, exports or summaries sees it.
-- Older binaries work beside it: they see a withdrawn message as one without parts, and append, count and summarize as before.
-- They must be gone before content is erased: an older worker may store a part of a summary that it made before.

alter table ai_conversation
    add column withdrawn_messages bigint;                       -- messages that are withdrawn or erased; null: none ever was

alter table ai_message
    add column version integer,                                 -- number of the version in `content`; null: 1, it was never edited
    add column edited_ts timestamptz,                           -- when that version was stored; null: it was never edited
    add column withdrawn_ts timestamptz;                        -- when it was withdrawn or erased, and its content became []; null: it stands

-- Content that no longer stands: that of withdrawn messages, and earlier versions of edited ones. The new tables have no foreign
-- keys, as in 0023: only changes write them, under the conversation's row lock, and the trigger below clears them.
create table ai_message_version (
    tenant_id        uuid not null,                             -- owner, as in ai_conversation
    conversation_id  uuid not null,                             -- conversation
    message_id       bigint not null,                           -- message
    version          integer not null,                          -- 1, 2, 3 …: the version of the message that had this content
    change_id        bigint not null,                           -- the change that took it out of ai_message
    token_estimate   bigint not null,                           -- as in ai_message
    token_count      bigint,                                    -- as in ai_message; null: it was withdrawn before it was counted
    text_bytes       bigint not null,                           -- as in ai_message
    content_bytes    integer not null,                          -- bytes of content's text
    content          json not null,                             -- as in ai_message
    content_digest   bytea not null,                            -- as in ai_message
    tool_outline     json,                                      -- as in ai_message
    metadata         jsonb,                                     -- as in ai_message
    created_ts       timestamptz not null,                      -- when this version was stored
    replaced_ts      timestamptz not null default now(),        -- when it was withdrawn or replaced
    primary key (conversation_id, message_id, version)
);

-- Checkpoints that no longer hold, because a message in their range was changed.
create table ai_void_checkpoint (
    tenant_id                uuid not null,                     -- owner
    conversation_id          uuid not null,                     -- conversation
    void_change_id           bigint not null,                   -- the change because of which it no longer holds
    first_message_id         bigint not null,                   -- as in ai_conversation_checkpoint
    last_message_id          bigint not null,                   -- as in ai_conversation_checkpoint
    previous_message_id      bigint,                            -- as in ai_conversation_checkpoint
    summary                  text not null,                     -- as in ai_conversation_checkpoint; '' once a message in its range was erased
    token_usage              bigint not null,                   -- as in ai_conversation_checkpoint
    kind                     smallint not null,                 -- as in ai_conversation_checkpoint
    model                    text not null,                     -- as in ai_conversation_checkpoint
    prompt_version           integer not null,                  -- as in ai_conversation_checkpoint
    source_first_message_id  bigint not null,                   -- as in ai_conversation_checkpoint
    source_digest            bytea not null,                    -- as in ai_conversation_checkpoint; empty once a message in its range was erased
    tokens_before            bigint not null,                   -- as in ai_conversation_checkpoint
    tokens_after             bigint not null,                   -- as in ai_conversation_checkpoint
    generation               integer not null,                  -- as in ai_conversation_checkpoint
    trigger_kind             smallint not null,                 -- as in ai_conversation_checkpoint
    focus                    text not null,                     -- as in ai_conversation_checkpoint; '' once a message in its range was erased
    request_id               text,                              -- as in ai_conversation_checkpoint
    duration_ms              bigint not null,                   -- as in ai_conversation_checkpoint
    model_calls              integer not null,                  -- as in ai_conversation_checkpoint
    input_tokens             bigint not null,                   -- as in ai_conversation_checkpoint
    output_tokens            bigint not null,                   -- as in ai_conversation_checkpoint
    created_ts               timestamptz not null,              -- as in ai_conversation_checkpoint
    void_ts                  timestamptz not null default now(),-- since when it no longer holds
    primary key (conversation_id, void_change_id, first_message_id, last_message_id)
);

-- Operations that changed messages. The newest of them are events for watchers, and each is the answer of a repeated call.
create table ai_message_change (
    tenant_id         uuid not null,                            -- owner
    conversation_id   uuid not null,                            -- conversation
    change_id         bigint not null,                          -- the conversation's change_id with this change
    kind              smallint not null,                        -- 1 withdrawn, 2 restored, 3 edited, 4 erased
    first_ids         bigint[] not null,                        -- the changed messages as runs of ids: the first of each run
    last_ids          bigint[] not null,                        -- the last of each run
    version           integer,                                  -- of an edit: the new version; otherwise null
    void_checkpoints  integer not null,                         -- checkpoints that no longer hold because of it
    created_ts        timestamptz not null default now(),       -- when it was done
    primary key (conversation_id, change_id)
);

create or replace function delete_rows_of_conversation() returns trigger
language plpgsql
set search_path from current
as $$
begin
    delete from ai_separator where conversation_id = old.conversation_id;
    delete from ai_conversation_checkpoint where conversation_id = old.conversation_id;
    delete from ai_request where conversation_id = old.conversation_id;
    delete from ai_session where conversation_id = old.conversation_id;
    delete from ai_context_prefix where conversation_id = old.conversation_id;
    delete from ai_model_call where conversation_id = old.conversation_id;
    delete from ai_conversation_breaker where conversation_id = old.conversation_id;
    delete from ai_model_lease where conversation_id = old.conversation_id;
    delete from ai_summary_part where conversation_id = old.conversation_id;
    delete from ai_message_version where conversation_id = old.conversation_id;
    delete from ai_void_checkpoint where conversation_id = old.conversation_id;
    delete from ai_message_change where conversation_id = old.conversation_id;
    return null;
end
$$;


-- A change ends the recorded version of a context's beginning. A row whose change_epoch is its own epoch is a mark: the next
-- context differs from the version before it, from broken_message_id on. The check that knew eight reasons goes, as those of 0022
-- did.
alter table ai_context_prefix
    drop constraint ai_context_prefix_reason_known,
    add column change_epoch bigint;                             -- epoch of the newest mark up to this version; null: there is none
comment on column ai_context_prefix.reason is '1 first, 2 checkpoint, 3 separator, 4 system prompt, 5 swap, 6 budget, 7 repair, 8 idle; of marks: 1 nothing was recorded before, 9 withdrawal or restoration, 10 edit, 11 erasure';
comment on column ai_conversation.change_id is '+ 1 per stored summary, checkpoint and change of messages: what watchers have seen';
comment on column ai_conversation.revision is '+ 1 per update by a caller, and per change of stored messages: the etag';
comment on column ai_conversation.last_role is 'role of the newest message that stands; null when there is none';
comment on column ai_conversation.turn is 'turn of the newest message that stands; 0 before the first user message';

-- As in 0003: lz4 compresses several times faster than pglz.
do $$
begin
    alter table ai_message_version alter column content set compression lz4;
exception
    when feature_not_supported then null;
end
$$;

do $$
declare
    owned constant text[] := array['ai_message_version', 'ai_void_checkpoint', 'ai_message_change'];
    allowed constant text := '(select nullif(current_setting(''anneal.tenants'', true), '''')::uuid[])::uuid[]';
    name text;
begin
    foreach name in array owned loop
        execute format('create policy of_tenant on %I using ((tenant_id = any (%s)) is true)', name, allowed);
        execute format('alter table %I enable row level security', name);
        if exists (select from pg_roles where rolname = 'anneal_app') then
            execute format('grant select, insert, update, delete on %I to anneal_app', name);
        end if;
    end loop;
end
$$;
