-- The workers that hold leases of jobs, of all tenants, and how many each holds.
select worker as "name!", count(*) as "jobs!"
from ai_job
where state = 1 and lease_until_ts > now() and worker is not null
group by worker
order by worker
limit 100
