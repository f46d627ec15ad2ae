-- Bytes of the content of the messages after $3 up to $4. Messages of older versions have no
-- content_bytes, so their content must be read to be measured. This is not done if the bytes that
-- are known without it exceed $5 already; then the result is too small.
select case
    when known > $5::bigint then known
    else (
        select coalesce(sum(coalesce(content_bytes, octet_length(content::text))), 0)::bigint from ai_message
        where tenant_id = $1
          and conversation_id = $2
          and message_id > $3
          and message_id <= $4
    )
    end as "bytes!"
from (
    select coalesce(sum(coalesce(content_bytes, text_bytes)), 0)::bigint as known from ai_message
    where tenant_id = $1
      and conversation_id = $2
      and message_id > $3
      and message_id <= $4
) as measured
