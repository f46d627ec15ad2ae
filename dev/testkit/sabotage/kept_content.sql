-- A naive implementation marks a withdrawn or erased message, but leaves its content in the row, and
-- trusts every statement to pass it over.
create schema sabotage;

create function sabotage.keep_content() returns trigger language plpgsql as $$
begin
    new.content := old.content;
    new.content_digest := old.content_digest;
    new.content_bytes := old.content_bytes;
    new.text_bytes := old.text_bytes;
    return new;
end
$$;

create trigger sabotage before update on ai_message
for each row when (old.withdrawn_ts is null and new.withdrawn_ts is not null) execute function sabotage.keep_content();
