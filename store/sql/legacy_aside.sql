-- Renames the older tables, so that the present schema can be created. The present schema also
-- needs the names of their indexes, so the indexes are renamed as well. The two new indexes serve
-- the move of the rows, because the older tables may have no such keys.
do $$
declare
    old_index record;
begin
    for old_index in
        select indexrelid::regclass as name, indexrelid as number
        from pg_index
        where indrelid in (
            to_regclass('ai_conversation'), to_regclass('ai_message'), to_regclass('ai_conversation_checkpoint')
        )
    loop
        execute format('alter index %s rename to legacy_index_%s', old_index.name, old_index.number);
    end loop;
end
$$;
alter table ai_conversation rename to legacy_ai_conversation;
alter table ai_message rename to legacy_ai_message;
alter table if exists ai_conversation_checkpoint rename to legacy_ai_conversation_checkpoint;
create unique index legacy_ai_conversation_by_id on legacy_ai_conversation ((id::bigint));
create unique index legacy_ai_message_by_id on legacy_ai_message ((id::bigint))
