-- Conversations can be forked: a fork is a conversation that begins with copies of another one's messages. It has its own rows from
-- then on, and stays when its source is deleted.
-- Older binaries work beside it: to them a fork is a conversation like any other. One that deletes a fork leaves no row behind,
-- because the trigger below deletes its row of ai_fork.

alter table ai_conversation
    add column forked_from_id uuid,                             -- the conversation that it was forked from, which may be deleted since; null: none
    add column forked_message_id bigint;                        -- the newest message that it took over from there; null: it is no fork

-- The forks of conversations. A table of its own, because an index of ai_conversation would be built under a lock for which appends
-- wait. No foreign key, as in 0023: only a fork writes here, in the transaction that creates the conversation.
create table ai_fork (
    tenant_id        uuid not null,                             -- owner
    conversation_id  uuid primary key,                          -- the fork
    source_id        uuid not null,                             -- the conversation that it was forked from
    created_ts       timestamptz not null default now()         -- when it was forked
);

-- list_forks.
create index ai_fork_by_source on ai_fork (source_id, created_ts desc, conversation_id desc);

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
    return null;
end
$$;

create policy of_tenant on ai_fork
    using ((tenant_id = any ((select nullif(current_setting('anneal.tenants', true), '')::uuid[])::uuid[])) is true);
alter table ai_fork enable row level security;

do $$
begin
    if exists (select from pg_roles where rolname = 'anneal_app') then
        grant select, insert, update, delete on ai_fork to anneal_app;
    end if;
end
$$;
