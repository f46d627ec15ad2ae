-- The message after which an audit begins, so that it reads at most the newest $3 messages, and at
-- most $4 bytes of content besides the newest message. 0: it reads all. If content was not measured
-- when it was stored, its size in the table is used, which needs no reading: content does not leave
-- the database for an audit.
select coalesce(min(message_id) - 1, 0) as "after!"
from (
    select message_id, row_number() over newest as place,
        sum(coalesce(content_bytes, greatest(text_bytes, pg_column_size(content)))) over newest as bytes
    from (
        select message_id, text_bytes, content_bytes, content from ai_message
        where tenant_id = $1
          and conversation_id = $2
        order by message_id desc
        limit $3
    ) as last
    window newest as (order by message_id desc)
) as message
where place = 1
   or bytes <= $4::bigint
