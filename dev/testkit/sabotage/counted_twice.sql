-- A naive implementation adds the tokens of a message to the total a second time when it is counted.
create schema sabotage;

create function sabotage.count_again() returns trigger language plpgsql security definer as $$
begin
    new.token_total := new.token_total + greatest(new.token_total - old.token_total, 1);
    return new;
end
$$;

create trigger sabotage before update on ai_conversation
for each row when (new.counted_message_id > old.counted_message_id) execute function sabotage.count_again();
