"""What small records have in common, given to the compressor beforehand: a record of a hundred bytes then takes forty.

Part of the file format: records packed with it can be read only with it. It is never changed; a better one would be a
second dictionary with a packing of its own.
"""

FIRST = (
    b'{"summary":"session.error","class":"network","message":"'
    b'{"trigger":"threshold","success":true,"tokens_before":,"tokens_after":,"usage":{"input":,"upto":,"kept":[,"masked":'
    b'{"purpose":"summary","usage":{"input":,"output":,"estimated":true},"text":"'
    b'{"action":"1.0","call":"1.0","severity":"none","reason":"","shown":"","hash":"'
    b'{"action":"1.0","decision":"allow","by":"policy","auto_approved":true,"feedback":"'
    b'{"call":"1.0","name":"","arguments":{},"tool_call_id":"1.0","deadline_s":300.0}'
    b'{"action":"1.0","question":"","options":["continue","stop"],"purpose":"ask_user","call":"1.0"}'
    b'{"op":"added","id":"q_","content":"","delivery":"steering"}{"changes":{"model":"","mode":"auto-edit"}}'
    b'{"steps":[{"text":"","status":"in_progress"},{"text":"","status":"done"},{"text":"'
    b'{"turn":1,"attempt":1,"class":"overloaded","message":"","delay_s":2.0,"usage":{"input":'
    b'{"reason":"task_complete"}{"reason":"interrupted"}{"reason":"done"}'
    b'{"content":"","delivery":"queued","source":"autopilot","queue_id":"q_'
    b'{"files":[{"path":"src/","action":"modified","added":1,"removed":1}],"call":"1.0"}'
    b'"diff_stat":{"added":1,"removed":1},"sandbox":"","output":"","duration_ms":1}'
    b'{"call":"1.0","success":false,"error":"","result_summary":"","synthetic":"interrupted"}'
    b'{"turn":1,"content":"","reasoning":[{"text":"","opaque":"","model":"openai:'
    b'"name":"list_directory","arguments":"{\\"path\\":\\".\\"}","name":"write_file","arguments":"{\\"path\\":\\"","content'
    b'\\":\\""name":"edit_file","arguments":"{\\"path\\":\\"","old_str\\":\\"","new_str\\":\\""name":"task_complete",'
    b'"name":"run_command","arguments":{"command":"python -m '
    b'{"turn":1,"model":"openai:gpt-","reserved":{"input":1200,"output":600,"usd":0.00,"estimated":true}}'
    b'{"turn":2,"usage":{"input":1000,"output":50,"cached":0,"reasoning":0,"usd":0.00},"finish_reason":"stop"}'
    b'"finish_reason":"tool_calls"}{"call":"20.0","name":"read_file","arguments":{"path":"src/"},"args_summary":"src/'
    b'{"turn":1,"tool_requests":[{"call":"1.0","name":"read_file","arguments":"{\\"path\\":\\"src/\\"}","id":"call_0"}]}'
    b'{"call":"1.0","success":true,"result":"\\n    \\n        return self.import from def class if not None",'
    b'"result_summary":"'
)
