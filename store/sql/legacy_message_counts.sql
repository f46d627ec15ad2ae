-- How many older rows of each fate there are, messages by role; rows that are odd in themselves, the first of each by its id.
-- $1: the most bytes that a message may have.
select fate, case when fate = 'message' then role else '' end as role, count(*) as rows,
    count(*) filter (where bytes = 0) as empty,
    count(*) filter (where bytes > $1) as too_long,
    min(id) filter (where bytes > $1) as first_too_long,
    count(*) filter (where created_us is null) as timeless,
    min(id) filter (where created_us is null) as first_timeless,
    min(id) as first
from legacy_message
group by 1, 2
order by 1, 2
limit 100
