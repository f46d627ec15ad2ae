-- Whether the tenant has a conversation.
-- Every conversation meets `listed_ts <= 'infinity'`. With this condition, a plan may use the index
-- by tenant (see migrations/0008_places.sql), and reads no other tenant's pages. With `is not
-- null`, PostgreSQL 17 and later find no such plan, because they drop that condition of a column
-- that cannot be null.
select exists (
    select from ai_conversation
    where tenant_id = $1
      and listed_ts <= 'infinity'
) as "exists!"
