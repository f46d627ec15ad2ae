-- What each tenant has stored. Servers compare it with the quotas `limits.tenant_messages` and
-- `limits.tenant_content_bytes`. The transaction that stores token counts adds the messages that it counts, and the
-- transaction that deletes a conversation subtracts them, so that an append writes nothing more than before. Messages
-- that are not counted yet are not in it.
-- During a rolling upgrade, older workers store token counts without adding to this table, so its figures may be too
-- low. No check constraint: it would refuse every later delete of those messages. A delete subtracts down to 0 instead.

create table tenant_usage (
    tenant_id uuid primary key references tenant,               -- whose messages they are
    messages bigint not null,                                   -- counted messages that are stored
    content_bytes bigint not null                               -- bytes of their content's text
);

insert into tenant_usage (tenant_id, messages, content_bytes)
select tenant_id, count(*), sum(coalesce(content_bytes, octet_length(content::text)))
from ai_message
where token_count is not null
group by tenant_id;

create policy of_tenant on tenant_usage
    using ((tenant_id = any ((select nullif(current_setting('anneal.tenants', true), '')::uuid[])::uuid[])) is true);
alter table tenant_usage enable row level security;

do $$
begin
    if exists (select from pg_roles where rolname = 'anneal_app') then
        grant select, insert, update, delete on tenant_usage to anneal_app;
    end if;
end
$$;
