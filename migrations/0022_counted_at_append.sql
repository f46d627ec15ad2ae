-- Appends count small messages themselves: they store the row of a message once, with its token count, and enqueue a
-- counting job only if a message is not counted or if a trigger may be reached.
-- Older binaries work beside it: they store messages that are not counted and enqueue jobs. What their servers store and
-- their workers count is in `tenant_usage`, as before.

-- What each tenant has stored, in parts: a transaction adds to the part of its backend process, so that appends of one
-- tenant do not wait for each other. The usage is the sum of all parts and of the tenant's row in `tenant_usage`, to which
-- older versions added. A part may be negative: a delete subtracts from the part of its own process.
create table tenant_usage_part (
    tenant_id uuid not null references tenant,                  -- whose messages they are
    part smallint not null,                                     -- process id of the backend, modulo 64
    messages bigint not null,                                   -- counted messages that are stored
    content_bytes bigint not null,                              -- bytes of their content's text
    primary key (tenant_id, part)
) with (fillfactor = 50);

create policy of_tenant on tenant_usage_part
    using ((tenant_id = any ((select nullif(current_setting('anneal.tenants', true), '')::uuid[])::uuid[])) is true);
alter table tenant_usage_part enable row level security;

do $$
begin
    if exists (select from pg_roles where rolname = 'anneal_app') then
        grant select, insert, update, delete on tenant_usage_part to anneal_app;
    end if;
end
$$;

-- Whether `ai_request` may have an append of which no message was kept. Appends with a request id look there only if it is
-- true.
alter table ai_conversation
    add column has_empty_appends boolean not null default false; -- an append was recorded of which no message was kept

update ai_conversation as c
set has_empty_appends = true
where exists (
    select from ai_request
    where conversation_id = c.conversation_id
      and method = 'append_messages'
);

-- PostgreSQL parses the text of a check constraint in each statement that writes to its table: the ten of these tables took
-- a quarter of a small append. Their columns are written by a few statements with values of Rust's types; the tests, and
-- `anneal verify` for stored rows, guard what they guarded.
alter table ai_conversation
    drop constraint ai_conversation_status_known,
    drop constraint ai_conversation_encoding_known,
    drop constraint ai_conversation_counted_within;
alter table ai_message
    drop constraint ai_message_role_known,
    drop constraint ai_message_tokens_not_negative,
    drop constraint ai_message_request_whole,
    drop constraint ai_message_summary_whole;
alter table ai_job
    drop constraint ai_job_state_known,
    drop constraint ai_job_lease_whole,
    drop constraint ai_job_priority_known;

-- Rows of messages are rarely updated now: their pages need no room for it.
alter table ai_message set (fillfactor = 100);
