-- Turns can be stopped, answered anew and answered by another model; contexts are compared with what the provider's cache really
-- holds; checkpoints can be prepared for the time when that cache is cold.
-- Older binaries work beside it: they ignore the new columns, do not see that a turn of theirs is to be stopped, and record versions
-- of contexts that name no model. One that deletes a conversation leaves no row behind, because the trigger below deletes them.

alter table ai_model_lease
    add column request_id text,                                 -- request id of the turn, or of the one after which it keeps a cache warm; null: a summary's, or of an older server
    add column stop smallint;                                   -- 1 the turn stops and keeps what has come, 2 it stops and drops it; null: it goes on

alter table ai_message
    add column stopped boolean;                                 -- true: an answer that was stopped before its end; null: it was not

alter table ai_conversation
    add column chat_options json;                               -- options of turns (tools and so on) where a call names none; null: none

alter table ai_context_prefix
    add column model text,                                      -- model that the version was built for; null: not known
    add column tools_digest bytea,                              -- SHA-256 of the declared tools; null: not known
    add column options_digest bytea;                            -- SHA-256 of the options that are part of the provider's cache key; null: not known

-- The checks that knew three cache states and four stop reasons go, as those of 0022 did.
alter table ai_model_call
    drop constraint ai_model_call_state_known,
    drop constraint ai_model_call_stop_reason_known,
    add column expected_tokens bigint,                          -- input that was expected in the provider's cache; null: not recorded
    add column break_reason smallint,                           -- why less than the last call's context was expected, as ai_context_prefix.reason; null: nothing broke
    add column long_written_tokens bigint,                      -- of written_tokens: written to a cache of an hour; null: none
    add column ping boolean;                                    -- true: a call that only keeps the provider's cache warm; null: it is not
comment on column ai_model_call.cache_state is '1 nothing expected, 2 warm, 3 cold by the provider, 4 cold because the context broke';
comment on column ai_model_call.stop_reason is '1 end of the answer, 2 tool calls, 3 output limit, 4 content filter, 5 stopped by a caller; null: not reported';
comment on column ai_context_prefix.reason is '1 first, 2 checkpoint, 3 separator, 4 system prompt, 5 swap, 6 budget, 7 repair, 8 idle, 12 model, 13 tools, 14 options; of marks: 1 nothing was recorded before, 9 withdrawal or restoration, 10 edit, 11 erasure';
comment on column ai_conversation_checkpoint.trigger_kind is '1 tokens, 2 messages, 3 manual, 4 imported, 5 the provider''s cache was cold';
comment on column ai_conversation.stalled_message_id is 'no compaction by a trigger until a message after this one is the newest; may lie ahead of the newest message';

-- Answers that were withdrawn because their question was answered anew. Ids only: their content is in ai_message_version. The new
-- tables have no foreign keys, as in 0023: rows are written under the conversation's row lock, and the trigger below clears them.
create table ai_alternative (
    tenant_id         uuid not null,                            -- owner
    conversation_id   uuid not null,                            -- conversation
    question_id       bigint not null,                          -- the last message of the question
    number            integer not null,                         -- 1, 2, 3 … in the order of answering
    question_version  integer not null,                         -- version of the question that it answers
    first_ids         bigint[] not null,                        -- its messages as runs of ids: the first of each run
    last_ids          bigint[] not null,                        -- the last of each run
    change_id         bigint not null,                          -- the withdrawal that made it an alternative
    chosen_change_id  bigint,                                   -- the restoration after which it stands again; null: it is withdrawn
    created_ts        timestamptz not null default now(),       -- when it was first withdrawn
    primary key (conversation_id, question_id, number)
);

-- Summaries that are made ahead. One becomes a checkpoint when a context is built while the provider's cache is cold. Every change of
-- messages deletes it. A row with the summary '' says that none could be made, and is never a checkpoint: its columns from kind to
-- output_tokens say nothing.
create table ai_prepared_checkpoint (
    tenant_id                uuid not null,                     -- owner
    conversation_id          uuid primary key,                  -- conversation, which has at most one
    first_message_id         bigint not null,                   -- as in ai_conversation_checkpoint
    last_message_id          bigint not null,                   -- as in ai_conversation_checkpoint; with the summary '': the last message before the next try, which may lie ahead of the newest one
    previous_message_id      bigint,                            -- as in ai_conversation_checkpoint
    summary                  text not null,                     -- as in ai_conversation_checkpoint; '': none could be made
    token_usage              bigint not null,                   -- as in ai_conversation_checkpoint
    kind                     smallint not null,                 -- as in ai_conversation_checkpoint
    model                    text not null,                     -- as in ai_conversation_checkpoint
    prompt_version           integer not null,                  -- as in ai_conversation_checkpoint
    source_first_message_id  bigint not null,                   -- as in ai_conversation_checkpoint
    source_digest            bytea not null,                    -- as in ai_conversation_checkpoint
    tokens_before            bigint not null,                   -- as in ai_conversation_checkpoint
    tokens_after             bigint not null,                   -- as in ai_conversation_checkpoint
    generation               integer not null,                  -- as in ai_conversation_checkpoint
    trigger_kind             smallint not null,                 -- as in ai_conversation_checkpoint
    focus                    text not null,                     -- as in ai_conversation_checkpoint
    duration_ms              bigint not null,                   -- as in ai_conversation_checkpoint
    model_calls              integer not null,                  -- as in ai_conversation_checkpoint
    input_tokens             bigint not null,                   -- as in ai_conversation_checkpoint
    output_tokens            bigint not null,                   -- as in ai_conversation_checkpoint
    created_ts               timestamptz not null default now() -- when it was prepared
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
    delete from ai_fork where conversation_id = old.conversation_id;
    delete from ai_alternative where conversation_id = old.conversation_id;
    delete from ai_prepared_checkpoint where conversation_id = old.conversation_id;
    return null;
end
$$;

do $$
declare
    owned constant text[] := array['ai_alternative', 'ai_prepared_checkpoint'];
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
