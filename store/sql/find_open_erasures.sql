-- Up to $1 erasures that have not ended, of all tenants, the oldest step first.
select tenant_id, erasure_id
from ai_erasure
where state = 0
order by stepped_ts
limit $1
