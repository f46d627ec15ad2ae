-- A naive implementation has one breaker per model: the failures of one tenant's calls open it for
-- all tenants.
create schema sabotage;

create function sabotage.open_for_all() returns trigger language plpgsql as $$
begin
    update ai_model_breaker set open_until_ts = new.open_until_ts
    where model = new.model;
    return null;
end
$$;

create trigger sabotage after insert or update on ai_tenant_breaker
for each row when (new.open_until_ts is not null) execute function sabotage.open_for_all();
