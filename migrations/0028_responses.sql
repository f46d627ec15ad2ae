-- Responses of the OpenAI protocol: turns that clients can find again by an id of their own. Older binaries work beside it: they do not
-- know the table, and one that deletes a conversation leaves no row behind, because the trigger below deletes them.

alter table tenant
    add column seal_key bytea not null                          -- 32 random bytes: key of the codes that say that opaque content given to this tenant's clients comes from here
        default decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex');

-- The rows hold no message: input and output are messages of the conversation. As in 0023, there is no foreign key.
create table ai_response (
    tenant_id             uuid not null,                        -- owner
    response_id           uuid not null,                        -- id; of a create with an idempotency key derived from that key, else random
    conversation_id       uuid not null,                        -- conversation whose turn it is
    request_id            text not null,                        -- request id of the turn
    previous_response_id  uuid,                                 -- response that it continues; null: none, or a named conversation
    after_message_id      bigint not null,                      -- newest message before its input; 0: none
    question_last_id      bigint,                               -- last message of its input; null: not stored yet
    answer_message_id     bigint,                               -- message with its output; null: none
    is_chain              boolean not null,                     -- true: the conversation was made for responses that name no conversation
    background            boolean not null,                     -- true: the caller did not wait for its end
    cancelled_ts          timestamptz,                          -- when it was told to end; null: it was not
    request               json not null,                        -- what its answers repeat of the request (instructions, tools, metadata, options); byte for byte
    request_digest        bytea not null,                       -- SHA-256 of the request's body: a repetition must have the same
    created_ts            timestamptz not null default now(),   -- when it was created
    ended_ts              timestamptz,                          -- when its end was stored; null: it is under way, or its server has stopped
    outcome               json,                                 -- how it has ended: status, error, usage, model; null: as ended_ts
    primary key (tenant_id, response_id)
);
-- delete_rows_of_conversation, delete_response.
create index ai_response_by_conversation on ai_response (conversation_id);

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
    delete from ai_response where conversation_id = old.conversation_id;
    return null;
end
$$;

do $$
declare
    owned constant text[] := array['ai_response'];
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
