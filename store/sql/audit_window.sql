-- The message after which an audit begins, so that it checks at most the newest $3 messages with at
-- most $4 bytes of content, and in any case the newest one. 0: it checks all messages. Messages of
-- older versions have no content_bytes. Their size in the table or the length of their text is used
-- instead, whichever is more: both are known without reading the content.
select coalesce(min(message_id) - 1, 0) as "after!"
from (
    select message_id, row_number() over newest as place,
        sum(coalesce(content_bytes, greatest(text_bytes, pg_column_size(content)))) over newest as bytes_to_newest
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
   or bytes_to_newest <= $4::bigint
