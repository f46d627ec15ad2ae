-- A naive implementation does not ask whose conversation is read. `NO_TENANT` takes the tenant out
-- of the statements; these policies let row-level security pass every row.
do $$
declare
    name text;
begin
    for name in
        select relname from pg_class
        where relrowsecurity
          and relnamespace = current_schema()::regnamespace
    loop
        execute format('create policy sabotage on %I using (true)', name);
    end loop;
end
$$;
