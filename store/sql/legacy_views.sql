-- Views that give the older tables one form, whatever the types of their columns are. A view still
-- reads its table after the table is renamed, so the same statements work before and after that.

-- A time in microseconds. The value is in seconds, in milliseconds (if it exceeds 10^11) or a
-- timestamp; null if it is none of these.
create function pg_temp.legacy_us(value jsonb) returns bigint language sql stable as $$
    select case jsonb_typeof(value)
        when 'number' then case
            when value::bigint between -100000000000 and 100000000000 then value::bigint * 1000000
            when value::bigint between -100000000000000 and 100000000000000 then value::bigint * 1000
        end
        when 'string' then case
            when isfinite((value #>> '{}')::timestamptz)
                then (extract(epoch from (value #>> '{}')::timestamptz) * 1000000)::bigint
        end
    end
$$;

-- The labels of a moved row, made of its old ids, its metadata and the columns that only some older
-- tables have. Null if they exceed the limits of labels (32 keys, 4 kB: METADATA_KEYS and
-- METADATA_BYTES in core/src/limits.rs).
create function pg_temp.legacy_labels(ids jsonb, metadata jsonb, others jsonb) returns jsonb language sql stable as $$
    select case
        when others = '{}' and coalesce(metadata, '{}') = '{}' then ids
        else (
            select case
                when count(*) <= 32 and sum(octet_length(key) + octet_length(value)) <= 4096
                    then jsonb_object_agg(key, value)
            end
            from jsonb_each_text(
                others
                || case jsonb_typeof(metadata)
                    when 'object' then metadata
                    else jsonb_build_object('metadata', metadata)
                end
                || ids
            )
            where value is not null
        )
    end
$$;

-- The conversations. A title of more than 512 bytes (TITLE_BYTES in core/src/limits.rs) is
-- shortened later; here the full title becomes a label.
create temporary view legacy_conversation as
select c.id::bigint as id, coalesce(c.uid::text, '') as uid, coalesce(c.creator_id::text, '') as creator,
    coalesce(c.title, '')::text as title, coalesce(c.pinned, false) as pinned,
    case upper(coalesce(c.row_status::text, 'NORMAL'))
        when 'NORMAL' then 'active'
        when 'ACTIVE' then 'active'
        when 'ARCHIVED' then 'archived'
        else 'other'
    end as status,
    pg_temp.legacy_us(to_jsonb(c.created_ts)) as created_us, ids.ids,
    pg_temp.legacy_labels(
        ids.ids, null,
        to_jsonb(c) - '{id,uid,creator_id,title,pinned,created_ts,updated_ts,row_status}'::text[]
    ) as labels
from ai_conversation as c
cross join lateral (
    select jsonb_strip_nulls(jsonb_build_object(
        'legacy_id', c.id::text, 'legacy_uid', nullif(c.uid::text, ''), 
        'legacy_updated_ts', to_jsonb(c.updated_ts) #>> '{}',
        'legacy_title', case when octet_length(c.title) > 512 then c.title end,
        'legacy_row_status', case
            when upper(c.row_status::text) not in ('NORMAL', 'ACTIVE', 'ARCHIVED') then c.row_status::text
        end
    )) as ids
) as ids;

-- The message rows, each with its fate: what the move does with it. Rows with the fates message and
-- separator are moved; summary, system_separator and orphan are left out; unknown_type and
-- unknown_role prevent the move. A separator is the system's if its metadata says so, or if the
-- next row is a summary.
create temporary view legacy_message as
select m.id::bigint as id, m.conversation_id::bigint as conversation_id, t.created_us, upper(m.role::text) as role,
    coalesce(octet_length(m.content), 0)::bigint as bytes,
    case
        when upper(m.type::text) = 'SUMMARY' then 'summary'
        when upper(m.type::text) = 'SEPARATOR' and (
            m.metadata ->> 'source' = 'system'
            or lead(upper(m.type::text)) over (partition by m.conversation_id order by t.created_us, m.id) = 'SUMMARY'
        ) then 'system_separator'
        when c.id is null then 'orphan'
        when upper(m.type::text) = 'SEPARATOR' then 'separator'
        when upper(m.type::text) is distinct from 'MESSAGE' then 'unknown_type'
        when upper(m.role::text) in ('USER', 'ASSISTANT', 'SYSTEM') then 'message'
        else 'unknown_role'
    end as fate
from ai_message as m
cross join lateral (select pg_temp.legacy_us(to_jsonb(m.created_ts)) as created_us) as t
left join ai_conversation as c on c.id = m.conversation_id;

-- The content and the labels of the message rows.
create temporary view legacy_content as
select m.id::bigint as id, coalesce(m.content, '')::text as content, ids.ids,
    pg_temp.legacy_labels(
        ids.ids, m.metadata,
        case
            when exists (
                select from pg_attribute
                where attrelid = 'ai_message'::regclass
                  and attnum > 0
                  and not attisdropped
                  and attname <> all ('{id,uid,conversation_id,type,role,content,metadata,created_ts,summary_cache}'::text[])
            )
            then to_jsonb(m) - '{id,uid,conversation_id,type,role,content,metadata,created_ts,summary_cache}'::text[]
            else '{}'
        end
    ) as labels
from ai_message as m
cross join lateral (
    select jsonb_strip_nulls(jsonb_build_object('legacy_id', m.id::text, 'legacy_uid', nullif(m.uid::text, ''))) as ids
) as ids
