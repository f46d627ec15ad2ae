-- A naive implementation deletes the row of the conversation, but not the rows of its messages.
create schema sabotage;

create function sabotage.keep_message() returns trigger language plpgsql as $$
begin
    return null;
end
$$;

create trigger sabotage before delete on ai_message
for each row execute function sabotage.keep_message();
