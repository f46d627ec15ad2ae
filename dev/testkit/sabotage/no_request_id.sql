-- A naive implementation ignores request ids: it stores a repeated append again.
create schema sabotage;

create function sabotage.drop_request_id() returns trigger language plpgsql as $$
begin
    new.request_id := null;
    new.request_digest := null;
    new.request_messages := null;
    return new;
end
$$;

create trigger sabotage before insert on ai_message
for each row execute function sabotage.drop_request_id();
