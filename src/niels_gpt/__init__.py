"""A thin face with the interfaces of the niels_gpt project; the work is done by tokenreel."""
