-- Appends pay for no foreign key. Each update of a conversation compared its id under every foreign key that refers to it,
-- and read the row's older version for that: 2 % of an append. What these keys guarded is guarded by others now:
-- - The trigger deletes the rows that refer to a deleted conversation. It serves older servers too, which expect a cascade.
--   It runs in the role of the session that deletes, under row-level security.
-- - A statement that inserts such a row locks the conversation's row, at least `for key share`.
-- - No statement deletes a tenant. The second trigger refuses to delete one that has conversations.
-- Older processes work beside it. For a few milliseconds of a deletion, some of their statements can insert a row that stays.
-- The auditor reports such rows.

-- ai_conversation comes first: most transactions lock it before other tables. One that does not can be in a deadlock with this
-- migration, which is then tried again.
alter table ai_conversation drop constraint ai_conversation_tenant_id_fkey;
do $$
declare
    key record;
begin
    -- By what they refer to: tables that were moved from an older system may have other names, or none.
    for key in
        select conrelid::regclass as referring, conname from pg_constraint
        where contype = 'f'
          and confrelid = 'ai_conversation'::regclass
          and conrelid = any (array['ai_separator', 'ai_conversation_checkpoint', 'ai_request', 'ai_session', 'ai_context_prefix',
              'ai_model_call', 'ai_conversation_breaker', 'ai_model_lease', 'ai_summary_part']::regclass[])
        order by conrelid
    loop
        execute format('alter table %s drop constraint %I', key.referring, key.conname);
    end loop;
end
$$;
alter table tenant_usage_part drop constraint tenant_usage_part_tenant_id_fkey;

-- Messages and jobs never had a foreign key: DeleteConversation deletes them itself.
create function delete_rows_of_conversation() returns trigger
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
    return null;
end
$$;

create trigger ai_conversation_delete_rows after delete on ai_conversation
for each row execute function delete_rows_of_conversation();

create function refuse_tenant_with_conversations() returns trigger
language plpgsql
set search_path from current
as $$
begin
    if exists (select from ai_conversation where tenant_id = old.tenant_id) then
        raise foreign_key_violation using message = format('the tenant %L has conversations', old.name);
    end if;
    return old;
end
$$;

create trigger tenant_keep_with_conversations before delete on tenant
for each row execute function refuse_tenant_with_conversations();
