# cmake -DFROM=file -DTO=file.cc -DNAME=Function -DHEADER=header -P EmbedText.cmake: a C++ file whose function returns the text.
file(READ "${FROM}" text)
file(WRITE "${TO}" "#include \"${HEADER}\"\n\nnamespace tidemark {\n\nstd::string_view ${NAME}() {\n  return R\"tidemark(${text})tidemark\";\n}\n\n}  // namespace tidemark\n")
